package realdb_test

// sakilaQuestions are asked of the film rental, which is there for PostgreSQL only.
var sakilaQuestions = []question{
	{"sorted list", `film($sort:@s,$limit:@l){ title, release_year, rating }`, `{"s":{"title":1},"l":12}`,
		`SELECT film_id AS "_id", title, release_year, rating FROM film ORDER BY title, film_id LIMIT 12`},
	{"enumeration", `film($condition:@c,$limit:@l){ rating }`, `{"c":{"rating":{"$in":["R","NC-17"]}},"l":40}`,
		`SELECT film_id AS "_id", rating FROM film WHERE rating IN ('R', 'NC-17') ORDER BY 1 LIMIT 40`},
	{"arrays", `film($condition:@c){ special_features }`, `{"c":{"_id":{"$lte":25}}}`,
		`SELECT film_id AS "_id", to_json(special_features) AS special_features FROM film WHERE film_id <= 25 ORDER BY 1`},
	{"domain", `film($condition:@c,$limit:@l){ release_year }`, `{"c":{"release_year":2006},"l":10}`,
		`SELECT film_id AS "_id", release_year FROM film WHERE release_year = 2006 ORDER BY 1 LIMIT 10`},
	{"two references to one table", `film($condition:@c){ language { name }, original_language { name } }`, `{"c":{"_id":{"$lt":8}}}`,
		`SELECT film_id AS "_id", l.name AS "language.name", o.name AS "original_language.name" FROM film f JOIN language l ON l.language_id = f.language_id
			LEFT JOIN language o ON o.language_id = f.original_language_id WHERE film_id < 8 ORDER BY 1`},
	{"both ways back", `language{ name, film_by_language($sort:@s,$limit:@l){ title }, film_by_original_language { title } }`, `{"s":{"title":-1},"l":2}`,
		`SELECT l.language_id AS "_id", name, title AS "film_by_language.title" FROM language l LEFT JOIN
			(SELECT *, row_number() OVER (PARTITION BY language_id ORDER BY title DESC, film_id) AS n FROM film) f ON f.language_id = l.language_id AND n <= 2 ORDER BY 1, n`},
	{"cast of a film", `film($condition:@c){ title, film_actor { actor { first_name, last_name } } }`, `{"c":{"title":"ACADEMY DINOSAUR"}}`,
		`SELECT f.film_id AS "_id", title, first_name AS "film_actor.actor.first_name", last_name AS "film_actor.actor.last_name" FROM film f
			JOIN film_actor fa ON fa.film_id = f.film_id JOIN actor a ON a.actor_id = fa.actor_id WHERE title = 'ACADEMY DINOSAUR' ORDER BY fa.actor_id, fa.film_id`},
	{"films of an actor by category", `actor($condition:@c){ film_actor { film { title, film_category { category { name } } } } }`, `{"c":{"_id":7}}`,
		`SELECT a.actor_id AS "_id", title AS "film_actor.film.title", c.name AS "film_actor.film.film_category.category.name" FROM actor a
			JOIN film_actor fa ON fa.actor_id = a.actor_id JOIN film f ON f.film_id = fa.film_id JOIN film_category fc ON fc.film_id = f.film_id
			JOIN category c ON c.category_id = fc.category_id WHERE a.actor_id = 7 ORDER BY fa.actor_id, fa.film_id, fc.category_id`},
	{"decimal", `film($condition:@c){ rental_rate, replacement_cost }`, `{"c":{"rental_rate":"4.99","replacement_cost":{"$gte":"29.99"}}}`,
		`SELECT film_id AS "_id", rental_rate, replacement_cost FROM film WHERE rental_rate = 4.99 AND replacement_cost >= 29.99 ORDER BY 1`},
	{"boolean", `customer($condition:@c,$limit:@l){ activebool, active }`, `{"c":{"activebool":true,"active":0},"l":20}`,
		`SELECT customer_id AS "_id", activebool, active FROM customer WHERE activebool AND active = 0 ORDER BY 1 LIMIT 20`},
	{"day", `customer($condition:@c,$limit:@l){ create_date }`, `{"c":{"create_date":"2006-02-14"},"l":9}`,
		`SELECT customer_id AS "_id", create_date FROM customer WHERE create_date = '2006-02-14' ORDER BY 1 LIMIT 9`},
	{"times", `rental($condition:@c,$sort:@s,$limit:@l){ rental_date, return_date }`, `{"c":{"rental_date":{"$gte":"2005-05-25T00:00:00Z","$lt":"2005-05-25T01:00:00Z"}},"s":{"rental_date":-1},"l":30}`,
		`SELECT rental_id AS "_id", rental_date, return_date FROM rental WHERE rental_date >= '2005-05-25 00:00:00' AND rental_date < '2005-05-25 01:00:00'
			ORDER BY rental_date DESC, rental_id LIMIT 30`},
	{"fractions of a second", `payment($condition:@c,$sort:@s){ payment_date, amount }`, `{"c":{"customer_id":1},"s":{"payment_date":1}}`,
		`SELECT payment_id AS "_id", payment_date, amount FROM payment WHERE customer_id = 1 ORDER BY payment_date, payment_id`},
	{"not returned", `rental($condition:@c,$limit:@l){ inventory { film { title } } }`, `{"c":{"return_date":null},"l":25}`,
		`SELECT r.rental_id AS "_id", title AS "inventory.film.title" FROM rental r JOIN inventory i ON i.inventory_id = r.inventory_id JOIN film f ON f.film_id = i.film_id
			WHERE return_date IS NULL ORDER BY 1 LIMIT 25`},
	{"names with a column of the same name", `city($condition:@c){ city, country { country } }`, `{"c":{"city":{"$regex":"^Z"}}}`,
		`SELECT city_id AS "_id", city, country AS "country.country" FROM city JOIN country USING (country_id) WHERE city LIKE 'Z%' ORDER BY 1`},
	{"a name that was changed", `customer_list($condition:@c,$sort:@s){ id, zipCode, country }`, `{"c":{"country":"Germany"},"s":{"zipCode":1}}`,
		`SELECT id, "zip code" AS "zipCode", country FROM customer_list WHERE country = 'Germany' ORDER BY "zip code" NULLS FIRST, id`},
	{"view with sums", `sales_by_film_category($sort:@s){ category, total_sales }`, `{"s":{"total_sales":-1}}`,
		`SELECT category, total_sales FROM sales_by_film_category ORDER BY total_sales DESC, category`},
	{"the store", `store{ manager_staff { first_name }, address { address, city { city } } }`, `{}`,
		`SELECT s.store_id AS "_id", first_name AS "manager_staff.first_name", address AS "address.address", city AS "address.city.city" FROM store s
			JOIN staff m ON m.staff_id = s.manager_staff_id JOIN address a ON a.address_id = s.address_id JOIN city USING (city_id) ORDER BY 1`},
	{"back from the store", `staff{ username, store_by_manager_staff { _id } }`, `{}`,
		`SELECT m.staff_id AS "_id", username, s.store_id AS "store_by_manager_staff._id" FROM staff m LEFT JOIN store s ON s.manager_staff_id = m.staff_id ORDER BY 1, 3`},
	{"last rentals of customers", `customer($condition:@c){ last_name, rental($sort:@s,$limit:@l){ rental_date } }`, `{"c":{"_id":{"$in":[11,12,13]}},"s":{"rental_date":-1},"l":3}`,
		`SELECT c.customer_id AS "_id", last_name, rental_date AS "rental.rental_date" FROM customer c JOIN
			(SELECT *, row_number() OVER (PARTITION BY customer_id ORDER BY rental_date DESC, rental_id) AS n FROM rental) r ON r.customer_id = c.customer_id AND n <= 3
			WHERE c.customer_id IN (11, 12, 13) ORDER BY 1, n`},
	{"good customers", `customer($condition:@c){ last_name }`, `{"c":{"payment":{"$sum":{"$of":"amount","$gt":180}}}}`,
		`SELECT customer_id AS "_id", last_name FROM customer c WHERE (SELECT sum(amount) FROM payment p WHERE p.customer_id = c.customer_id) > 180 ORDER BY 1`},
	{"films without copies", `film($condition:@c){ title }`, `{"c":{"inventory":{"$exists":false}}}`,
		`SELECT film_id AS "_id", title FROM film f WHERE NOT EXISTS (SELECT 1 FROM inventory i WHERE i.film_id = f.film_id) ORDER BY 1`},
	{"films by their copies", `film($condition:@c){ title }`, `{"c":{"inventory":{"$filter":{"store_id":2},"$count":{"$gte":4}},"length":{"$lt":60}}}`,
		`SELECT film_id AS "_id", title FROM film f WHERE (SELECT count(*) FROM inventory i WHERE i.film_id = f.film_id AND store_id = 2) >= 4 AND length < 60 ORDER BY 1`},
	{"payments by staff", `payment($group:@g){ staff_id, n, sum, mean }`, `{"g":{"by":["staff_id"],"agg":{"n":{"$count":"*"},"sum":{"$sum":"amount"},"mean":{"$avg":"amount"}}}}`,
		`SELECT staff_id, count(*) AS n, sum(amount) AS sum, avg(amount) AS mean FROM payment GROUP BY staff_id ORDER BY staff_id`},
	{"films by rating", `film($group:@g,$sort:@s){ rating, n, longest }`, `{"g":{"by":["rating"],"agg":{"n":{"$count":"*"},"longest":{"$max":"length"}}},"s":{"n":-1}}`,
		`SELECT rating, count(*) AS n, max(length) AS longest FROM film GROUP BY rating ORDER BY n DESC, rating`},
	{"group with having and a decimal", `payment($group:@g,$having:@h,$sort:@s,$limit:@l){ customer_id, sum }`,
		`{"g":{"by":["customer_id"],"agg":{"sum":{"$sum":"amount"}}},"h":{"sum":{"$gte":150}},"s":{"sum":-1},"l":10}`,
		`SELECT customer_id, sum(amount) AS sum FROM payment GROUP BY customer_id HAVING sum(amount) >= 150 ORDER BY sum DESC, customer_id LIMIT 10`},
	{"a key of two columns", `film_category($condition:@c,$limit:@l){ film { title }, category { name } }`, `{"c":{"category_id":{"$in":[3,9]}},"l":30}`,
		`SELECT '["' || fc.film_id || '","' || fc.category_id || '"]' AS "_id", title AS "film.title", name AS "category.name" FROM film_category fc
			JOIN film USING (film_id) JOIN category c ON c.category_id = fc.category_id WHERE fc.category_id IN (3, 9) ORDER BY fc.film_id, fc.category_id LIMIT 30`},
	{"sort by the parent's parent's name", `address($condition:@c,$sort:@s,$limit:@l){ address, city { city } }`, `{"c":{"_id":{"$lt":60}},"s":{"city.city":-1},"l":20}`,
		`SELECT address_id AS "_id", address, city AS "city.city" FROM address JOIN city USING (city_id) WHERE address_id < 60 ORDER BY city DESC, address_id LIMIT 20`},
	{"case does not matter", `actor($condition:@c){ last_name }`, `{"c":{"last_name":{"$regex":"^gu.*s$","$options":"i"}}}`,
		`SELECT actor_id AS "_id", last_name FROM actor WHERE last_name ILIKE 'gu%s' ORDER BY 1`},
	{"text by the database's order", `actor($condition:@c,$sort:@s){ last_name }`, `{"c":{"last_name":{"$gte":"WA","$lt":"WI"}},"s":{"last_name":1,"first_name":-1}}`,
		`SELECT actor_id AS "_id", last_name FROM actor WHERE last_name >= 'WA' AND last_name < 'WI' ORDER BY last_name, first_name DESC, actor_id`},
	{"no row", `store($condition:@c){ address_id }`, `{"c":{"_id":3}}`, `SELECT store_id AS "_id", address_id FROM store WHERE store_id = 3`},
}

package realdb_test

// northwindQuestions are asked of the trading company. Names are those of PostgreSQL; the SQLite file has the same in
// another spelling (see camelNames), and other data.
var northwindQuestions = []question{
	{"sorted list", `customers($sort:@s,$limit:@l){ company_name }`, `{"s":{"company_name":1},"l":15}`,
		`SELECT customer_id AS "_id", company_name FROM customers ORDER BY company_name NULLS FIRST, customer_id LIMIT 15`},
	{"by a text key", `customers($condition:@c){ company_name, city }`, `{"c":{"_id":"ALFKI"}}`,
		`SELECT customer_id AS "_id", company_name, city FROM customers WHERE customer_id = 'ALFKI'`},
	{"all by a text key", `customers{ country }`, `{}`, `SELECT customer_id AS "_id", country FROM customers ORDER BY customer_id`},
	{"lines of an order", `orders($condition:@c){ ship_name, order_details { product_id, quantity } }`, `{"c":{"_id":{"$in":[10248,10250,10999]}}}`,
		`SELECT o.order_id AS "_id", ship_name, product_id AS "order_details.product_id", quantity AS "order_details.quantity" FROM orders o
			LEFT JOIN order_details d ON d.order_id = o.order_id WHERE o.order_id IN (10248, 10250, 10999) ORDER BY 1, d.product_id`},
	{"lines with their products", `order_details($condition:@c){ unit_price, discount, product { product_name } }`, `{"c":{"order_id":10258}}`,
		`SELECT '["' || d.order_id || '","' || d.product_id || '"]' AS "_id", d.unit_price, d.discount, p.product_name AS "product.product_name"
			FROM order_details d JOIN products p ON p.product_id = d.product_id WHERE d.order_id = 10258 ORDER BY d.order_id, d.product_id`},
	{"prices with a fraction", `order_details($condition:@c,$sort:@s,$limit:@l){ unit_price, quantity }`, `{"c":{"unit_price":{"$gt":20.5},"discount":{"$gte":0.25}},"s":{"unit_price":-1,"quantity":1},"l":25}`,
		`SELECT '["' || order_id || '","' || product_id || '"]' AS "_id", unit_price, quantity FROM order_details WHERE unit_price > 20.5 AND discount >= 0.25
			ORDER BY unit_price DESC NULLS LAST, quantity NULLS FIRST, order_id, product_id LIMIT 25`},
	{"exact price", `products($condition:@c){ product_name, unit_price }`, `{"c":{"unit_price":{"$in":[18,21.35,9.2]}}}`,
		`SELECT product_id AS "_id", product_name, unit_price FROM products WHERE unit_price IN (18, 21.35, 9.2) ORDER BY 1`},
	{"products with both parents", `products($condition:@c,$sort:@s){ product_name, category { category_name }, supplier { company_name, country } }`, `{"c":{"units_in_stock":{"$lt":10}},"s":{"units_in_stock":1}}`,
		`SELECT p.product_id AS "_id", product_name, category_name AS "category.category_name", company_name AS "supplier.company_name", country AS "supplier.country"
			FROM products p LEFT JOIN categories c ON c.category_id = p.category_id LEFT JOIN suppliers s ON s.supplier_id = p.supplier_id
			WHERE units_in_stock < 10 ORDER BY units_in_stock NULLS FIRST, p.product_id`},
	{"categories with dear products", `categories{ category_name, products($condition:@p,$sort:@s,$limit:@l){ product_name, unit_price } }`, `{"p":{"unit_price":{"$gt":30}},"s":{"unit_price":-1},"l":2}`,
		`SELECT c.category_id AS "_id", category_name, product_name AS "products.product_name", unit_price AS "products.unit_price" FROM categories c LEFT JOIN
			(SELECT *, row_number() OVER (PARTITION BY category_id ORDER BY unit_price DESC, product_id) AS n FROM products WHERE unit_price > 30) p
			ON p.category_id = c.category_id AND n <= 2 ORDER BY 1, n`},
	{"managers", `employees{ last_name, reports_to_ref { last_name } }`, `{}`,
		`SELECT e.employee_id AS "_id", e.last_name, m.last_name AS "reports_to_ref.last_name" FROM employees e LEFT JOIN employees m ON m.employee_id = e.reports_to ORDER BY 1`},
	{"the managed", `employees($condition:@c){ last_name, employees_by_reports_to($sort:@s){ last_name } }`, `{"c":{"employees_by_reports_to":{"$exists":true}},"s":{"last_name":1}}`,
		`SELECT e.employee_id AS "_id", e.last_name, c.last_name AS "employees_by_reports_to.last_name" FROM employees e JOIN employees c ON c.reports_to = e.employee_id
			ORDER BY 1, c.last_name, c.employee_id`},
	{"who has no manager", `employees($condition:@c){ title, birth_date }`, `{"c":{"reports_to":null}}`,
		`SELECT employee_id AS "_id", title, birth_date FROM employees WHERE reports_to IS NULL ORDER BY 1`},
	{"days", `employees($condition:@c,$sort:@s){ hire_date }`, `{"c":{"hire_date":{"$gte":"1993-01-01"}},"s":{"hire_date":-1}}`,
		`SELECT employee_id AS "_id", hire_date FROM employees WHERE hire_date >= '1993-01-01' ORDER BY hire_date DESC NULLS LAST, employee_id`},
	{"orders of a month", `orders($condition:@c){ order_date, shipped_date }`, `{"c":{"order_date":{"$gte":"1997-03-01","$lt":"1997-04-01"}}}`,
		`SELECT order_id AS "_id", order_date, shipped_date FROM orders WHERE order_date >= '1997-03-01' AND order_date < '1997-04-01' ORDER BY 1`},
	{"not shipped", `orders($condition:@c){ ship_via, customer { company_name } }`, `{"c":{"shipped_date":null}}`,
		`SELECT o.order_id AS "_id", ship_via, company_name AS "customer.company_name" FROM orders o LEFT JOIN customers c ON c.customer_id = o.customer_id
			WHERE shipped_date IS NULL ORDER BY 1`},
	{"shippers", `shippers{ company_name, orders($sort:@s,$limit:@l){ _id, freight } }`, `{"s":{"freight":-1},"l":3}`,
		`SELECT s.shipper_id AS "_id", company_name, order_id AS "orders._id", freight AS "orders.freight" FROM shippers s LEFT JOIN
			(SELECT *, row_number() OVER (PARTITION BY ship_via ORDER BY freight DESC, order_id) AS n FROM orders) o ON o.ship_via = s.shipper_id AND n <= 3 ORDER BY 1, n`},
	{"the shipper of an order", `orders($condition:@c){ ship_via_ref { company_name } }`, `{"c":{"_id":{"$lt":10260}}}`,
		`SELECT o.order_id AS "_id", company_name AS "ship_via_ref.company_name" FROM orders o LEFT JOIN shippers s ON s.shipper_id = o.ship_via WHERE o.order_id < 10260 ORDER BY 1`},
	{"four levels", `region($condition:@c){ territories($condition:@t){ _id, employee_territories { employee { last_name, reports_to_ref { title } } } } }`,
		`{"c":{"_id":2},"t":{"_id":{"$gt":"7"}}}`,
		`SELECT r.region_id AS "_id", t.territory_id AS "territories._id", e.last_name AS "territories.employee_territories.employee.last_name",
			m.title AS "territories.employee_territories.employee.reports_to_ref.title"
			FROM region r JOIN territories t ON t.region_id = r.region_id AND t.territory_id > '7' LEFT JOIN employee_territories et ON et.territory_id = t.territory_id
			LEFT JOIN employees e ON e.employee_id = et.employee_id LEFT JOIN employees m ON m.employee_id = e.reports_to WHERE r.region_id = 2
			ORDER BY 1, t.territory_id, e.employee_id`},
	{"a key of two types", `employee_territories($condition:@c){ territory { territory_description } }`, `{"c":{"employee_id":1}}`,
		`SELECT '["' || et.employee_id || '","' || et.territory_id || '"]' AS "_id", territory_description AS "territory.territory_description"
			FROM employee_territories et JOIN territories t ON t.territory_id = et.territory_id WHERE et.employee_id = 1 ORDER BY et.employee_id, et.territory_id`},
	{"customers without orders", `customers($condition:@c){ company_name }`, `{"c":{"$not":{"orders":{"$exists":true}}}}`,
		`SELECT customer_id AS "_id", company_name FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.customer_id) ORDER BY customer_id`},
	{"customers with many orders", `customers($condition:@c){ company_name }`, `{"c":{"orders":{"$count":{"$gt":17}}}}`,
		`SELECT customer_id AS "_id", company_name FROM customers c WHERE (SELECT count(*) FROM orders o WHERE o.customer_id = c.customer_id) > 17 ORDER BY customer_id`},
	{"products by their lines", `products($condition:@c){ product_name }`,
		`{"c":{"order_details":{"filter":{"discount":0},"agg":{"n":{"$count":"*"},"most":{"$max":"quantity"}},"having":{"n":{"$gte":25},"most":{"$lt":80}}}}}`,
		`SELECT product_id AS "_id", product_name FROM products p WHERE (SELECT count(*) FROM order_details d WHERE d.product_id = p.product_id AND discount = 0) >= 25
			AND (SELECT max(quantity) FROM order_details d WHERE d.product_id = p.product_id AND discount = 0) < 80 ORDER BY 1`},
	{"products by the mean of their lines", `products($condition:@c){ product_name }`, `{"c":{"order_details":{"$avg":{"$of":"quantity","$gt":29}}}}`,
		`SELECT product_id AS "_id", product_name FROM products p WHERE (SELECT avg(quantity) FROM order_details d WHERE d.product_id = p.product_id) > 29 ORDER BY 1`},
	{"group by a country", `customers($group:@g,$sort:@s){ country, n }`, `{"g":{"by":["country"],"agg":{"n":{"$count":"*"}}},"s":{"n":-1,"country":1}}`,
		`SELECT country, count(*) AS n FROM customers GROUP BY country ORDER BY n DESC, country NULLS FIRST`},
	{"group by two columns", `orders($group:@g,$sort:@s){ ship_via, employee_id, n, most }`,
		`{"g":{"by":["ship_via","employee_id"],"agg":{"n":{"$count":"shipped_date"},"most":{"$max":"freight"}}},"s":{"ship_via":1,"employee_id":-1}}`,
		`SELECT ship_via, employee_id, count(shipped_date) AS n, max(freight) AS most FROM orders GROUP BY ship_via, employee_id
			ORDER BY ship_via NULLS FIRST, employee_id DESC NULLS LAST`},
	{"group with a page", `products($group:@g,$having:@h,$sort:@s,$skip:@k,$limit:@l){ supplier_id, n }`,
		`{"g":{"by":["supplier_id"],"agg":{"n":{"$count":"*"},"least":{"$min":"unit_price"}}},"h":{"$or":[{"n":{"$gte":3}},{"least":{"$lt":10}}]},"s":{"n":-1},"k":2,"l":6}`,
		`SELECT supplier_id, count(*) AS n FROM products GROUP BY supplier_id HAVING count(*) >= 3 OR min(unit_price) < 10
			ORDER BY n DESC, supplier_id NULLS FIRST LIMIT 6 OFFSET 2`},
	{"group by day", `employees($group:@g){ hire_date, n }`, `{"g":{"by":["hire_date"],"agg":{"n":{"$count":"*"}}}}`,
		`SELECT hire_date, count(*) AS n FROM employees GROUP BY hire_date ORDER BY hire_date NULLS FIRST`},
	{"regular expression over letters", `customers($condition:@c){ contact_name }`, `{"c":{"contact_name":{"$regex":"^[A-C].* .*o$"}}}`,
		`SELECT customer_id AS "_id", contact_name FROM customers WHERE substr(contact_name, 1, 1) IN ('A', 'B', 'C') AND contact_name LIKE '% %o' ORDER BY customer_id`},
	{"nested logic", `products($condition:@c){ product_name }`,
		`{"c":{"$and":[{"$or":[{"category_id":1},{"supplier_id":{"$in":[2,3]}}]},{"unit_price":{"$not":{"$gt":25}}},{"$nor":[{"units_in_stock":0}]}]}}`,
		`SELECT product_id AS "_id", product_name FROM products WHERE (category_id = 1 OR supplier_id IN (2, 3)) AND NOT unit_price > 25 AND NOT units_in_stock = 0 ORDER BY 1`},
	{"sort by parents", `products($condition:@c,$sort:@s,$limit:@l){ product_name, category { category_name }, supplier { city } }`,
		`{"c":{"units_on_order":0},"s":{"category.category_name":-1,"supplier.city":1},"l":30}`,
		`SELECT p.product_id AS "_id", product_name, category_name AS "category.category_name", city AS "supplier.city"
			FROM products p LEFT JOIN categories c ON c.category_id = p.category_id LEFT JOIN suppliers s ON s.supplier_id = p.supplier_id
			WHERE units_on_order = 0 ORDER BY category_name DESC NULLS LAST, city NULLS FIRST, p.product_id LIMIT 30`},
	{"no row", `orders($condition:@c){ ship_name }`, `{"c":{"ship_country":"Atlantis"}}`, `SELECT order_id AS "_id", ship_name FROM orders WHERE ship_country = 'Atlantis'`},
}

// northwindViews are asked of the views of the SQLite file, whose names are no identifiers. Views have no key, and are
// ordered by all their columns.
var northwindViews = []question{
	{"view", `OrderSubtotals($condition:@c,$sort:@s){ OrderID, Subtotal }`, `{"c":{"Subtotal":{"$gt":9000}},"s":{"OrderID":1}}`,
		`SELECT OrderID, Subtotal FROM "Order Subtotals" WHERE Subtotal > 9000 ORDER BY OrderID, Subtotal`},
	{"view ordered by its columns", `ProductsAboveAveragePrice{ ProductName, UnitPrice }`, `{}`,
		`SELECT ProductName, UnitPrice FROM "Products Above Average Price" ORDER BY ProductName, UnitPrice`},
	{"group of a view", `CustomerAndSuppliersByCity($group:@g){ Relationship, n }`, `{"g":{"by":["Relationship"],"agg":{"n":{"$count":"*"}}}}`,
		`SELECT Relationship, count(*) AS n FROM "Customer and Suppliers by City" GROUP BY 1 ORDER BY 1`},
}

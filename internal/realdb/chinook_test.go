package realdb_test

// chinookQuestions are asked of the music shop. Names are those of PostgreSQL; the SQLite file has the same in another
// spelling (see camelNames).
var chinookQuestions = []question{
	{"sorted list", `artist($sort:@s,$limit:@l){ name }`, `{"s":{"name":1},"l":10}`,
		`SELECT artist_id AS "_id", name FROM artist ORDER BY name NULLS FIRST, artist_id LIMIT 10`},
	{"sorted the other way, second page", `artist($sort:@s,$skip:@k,$limit:@l){ name }`, `{"s":{"name":-1},"k":20,"l":7}`,
		`SELECT artist_id AS "_id", name FROM artist ORDER BY name DESC NULLS LAST, artist_id LIMIT 7 OFFSET 20`},
	{"one row with its parent", `album($condition:@c){ title, artist { name } }`, `{"c":{"_id":5}}`,
		`SELECT album_id AS "_id", title, artist.name AS "artist.name" FROM album JOIN artist ON artist.artist_id = album.artist_id WHERE album_id = 5`},
	{"parents with their children", `artist($condition:@c){ name, album { _id, title } }`, `{"c":{"_id":{"$in":[1,2,3,50,25]}}}`,
		`SELECT artist.artist_id AS "_id", name, album_id AS "album._id", title AS "album.title" FROM artist LEFT JOIN album ON album.artist_id = artist.artist_id
			WHERE artist.artist_id IN (1, 2, 3, 50, 25) ORDER BY artist.artist_id, album_id`},
	{"children sorted by text", `album($condition:@c){ title, track($sort:@s){ name } }`, `{"c":{"artist_id":1},"s":{"name":-1}}`,
		`SELECT album.album_id AS "_id", title, track.name AS "track.name" FROM album JOIN track ON track.album_id = album.album_id
			WHERE album.artist_id = 1 ORDER BY album.album_id, track.name DESC, track_id`},
	{"two children of each parent", `album($condition:@c){ title, track($sort:@s,$limit:@n){ name, milliseconds } }`,
		`{"c":{"_id":{"$lte":12}},"s":{"milliseconds":-1},"n":2}`,
		`SELECT * FROM (SELECT album.album_id AS "_id", title, track.name AS "track.name", milliseconds AS "track.milliseconds",
			row_number() OVER (PARTITION BY album.album_id ORDER BY milliseconds DESC, track_id) AS "drop"
			FROM album JOIN track ON track.album_id = album.album_id WHERE album.album_id <= 12) x WHERE "drop" <= 2 ORDER BY "_id", "drop"`},
	{"the third child of each parent", `playlist($condition:@c){ playlist_track($skip:@k,$limit:@n){ track_id } }`,
		`{"c":{"_id":{"$gte":10}},"k":2,"n":1}`,
		`SELECT playlist.playlist_id AS "_id", track_id AS "playlist_track.track_id" FROM playlist LEFT JOIN (SELECT playlist_id, track_id,
			row_number() OVER (PARTITION BY playlist_id ORDER BY playlist_id, track_id) AS n FROM playlist_track) x
			ON x.playlist_id = playlist.playlist_id AND n = 3 WHERE playlist.playlist_id >= 10 ORDER BY 1`},
	{"three levels", `artist($condition:@c){ album { title, track($condition:@t){ name, genre { name } } } }`, `{"c":{"_id":50},"t":{"milliseconds":{"$gt":400000}}}`,
		`SELECT artist.artist_id AS "_id", title AS "album.title", t.name AS "album.track.name", genre.name AS "album.track.genre.name"
			FROM artist JOIN album ON album.artist_id = artist.artist_id LEFT JOIN track t ON t.album_id = album.album_id AND milliseconds > 400000
			LEFT JOIN genre ON genre.genre_id = t.genre_id WHERE artist.artist_id = 50 ORDER BY album.album_id, t.track_id`},
	{"a reference to itself, upwards", `employee{ last_name, reports_to_ref { last_name, reports_to_ref { last_name } } }`, `{}`,
		`SELECT e.employee_id AS "_id", e.last_name, m.last_name AS "reports_to_ref.last_name", g.last_name AS "reports_to_ref.reports_to_ref.last_name"
			FROM employee e LEFT JOIN employee m ON m.employee_id = e.reports_to LEFT JOIN employee g ON g.employee_id = m.reports_to ORDER BY 1`},
	{"a reference to itself, downwards", `employee{ title, employee_by_reports_to { first_name } }`, `{}`,
		`SELECT e.employee_id AS "_id", e.title, c.first_name AS "employee_by_reports_to.first_name"
			FROM employee e LEFT JOIN employee c ON c.reports_to = e.employee_id ORDER BY 1, c.employee_id`},
	{"range of times", `invoice($condition:@c){ invoice_date, total }`, `{"c":{"invoice_date":{"$gte":"2021-03-01T00:00:00Z","$lt":"2021-04-01T00:00:00Z"}}}`,
		`SELECT invoice_id AS "_id", invoice_date, total FROM invoice WHERE invoice_date >= '2021-03-01 00:00:00' AND invoice_date < '2021-04-01 00:00:00' ORDER BY 1`},
	{"all rows by time", `invoice($sort:@s){ invoice_date }`, `{"s":{"invoice_date":-1}}`,
		`SELECT invoice_id AS "_id", invoice_date FROM invoice ORDER BY invoice_date DESC, invoice_id`},
	{"decimal comparison", `invoice($condition:@c,$sort:@s){ total }`, `{"c":{"total":{"$gte":15.86}},"s":{"total":-1}}`,
		`SELECT invoice_id AS "_id", total FROM invoice WHERE total >= 15.86 ORDER BY total DESC, invoice_id`},
	{"decimal equality", `track($condition:@c,$limit:@l){ unit_price }`, `{"c":{"unit_price":1.99},"l":20}`,
		`SELECT track_id AS "_id", unit_price FROM track WHERE unit_price = 1.99 ORDER BY track_id LIMIT 20`},
	{"null", `customer($condition:@c){ last_name, company, state }`, `{"c":{"company":null,"state":{"$exists":true}}}`,
		`SELECT customer_id AS "_id", last_name, company, state FROM customer WHERE company IS NULL AND state IS NOT NULL ORDER BY 1`},
	{"not equal leaves null out", `track($condition:@c,$limit:@l){ composer }`, `{"c":{"composer":{"$ne":"AC/DC"},"album_id":{"$in":[1,2,3,4,5]}},"l":40}`,
		`SELECT track_id AS "_id", composer FROM track WHERE composer <> 'AC/DC' AND album_id IN (1, 2, 3, 4, 5) ORDER BY 1 LIMIT 40`},
	{"negation", `track($condition:@c){ milliseconds }`, `{"c":{"$nor":[{"milliseconds":{"$lt":2500000}},{"genre_id":{"$nin":[19,20]}}]}}`,
		`SELECT track_id AS "_id", milliseconds FROM track WHERE NOT (milliseconds < 2500000) AND NOT (genre_id NOT IN (19, 20)) ORDER BY 1`},
	{"or", `customer($condition:@c,$sort:@s){ country, city }`, `{"c":{"$or":[{"country":"Brazil"},{"city":{"$in":["Paris","Oslo"]}}]},"s":{"country":1,"city":-1}}`,
		`SELECT customer_id AS "_id", country, city FROM customer WHERE country = 'Brazil' OR city IN ('Paris', 'Oslo')
			ORDER BY country NULLS FIRST, city DESC NULLS LAST, customer_id`},
	{"regular expression", `artist($condition:@c){ name }`, `{"c":{"name":{"$regex":"^(Led|Deep) "}}}`,
		`SELECT artist_id AS "_id", name FROM artist WHERE substr(name, 1, 4) = 'Led ' OR substr(name, 1, 5) = 'Deep ' ORDER BY 1`},
	{"letters that are not ASCII", `artist($condition:@c){ name }`, `{"c":{"name":"Antônio Carlos Jobim"}}`,
		`SELECT artist_id AS "_id", name FROM artist WHERE name = 'Antônio Carlos Jobim'`},
	{"parents without children", `artist($condition:@c,$sort:@s){ name }`, `{"c":{"album":{"$exists":false}},"s":{"_id":-1}}`,
		`SELECT artist_id AS "_id", name FROM artist a WHERE NOT EXISTS (SELECT 1 FROM album WHERE album.artist_id = a.artist_id) ORDER BY 1 DESC`},
	{"parents by the number of children", `artist($condition:@c){ name }`, `{"c":{"album":{"$count":{"$gte":6}}}}`,
		`SELECT artist_id AS "_id", name FROM artist a WHERE (SELECT count(*) FROM album WHERE album.artist_id = a.artist_id) >= 6 ORDER BY 1`},
	{"parents by a sum of children", `customer($condition:@c){ last_name }`, `{"c":{"invoice":{"$filter":{"billing_country":"USA"},"$sum":{"$of":"total","$gt":39}}}}`,
		`SELECT customer_id AS "_id", last_name FROM customer c WHERE
			(SELECT sum(total) FROM invoice WHERE invoice.customer_id = c.customer_id AND billing_country = 'USA') > 39 ORDER BY 1`},
	{"children of a parent that is so", `track($condition:@c){ name }`, `{"c":{"album":{"$filter":{"title":"Let There Be Rock"},"$exists":true}}}`,
		`SELECT track_id AS "_id", name FROM track WHERE album_id IN (SELECT album_id FROM album WHERE title = 'Let There Be Rock') ORDER BY 1`},
	{"group", `invoice($group:@g,$sort:@s){ billing_country, n, revenue }`,
		`{"g":{"by":["billing_country"],"agg":{"n":{"$count":"*"},"revenue":{"$sum":"total"}}},"s":{"n":-1,"billing_country":1}}`,
		`SELECT billing_country, count(*) AS n, sum(total) AS revenue FROM invoice GROUP BY billing_country ORDER BY n DESC, billing_country NULLS FIRST`},
	{"group with having", `track($group:@g,$having:@h,$sort:@s){ genre_id, n, longest }`,
		`{"g":{"by":["genre_id"],"agg":{"n":{"$count":"composer"},"longest":{"$max":"milliseconds"},"least":{"$min":"bytes"}}},"h":{"n":{"$gt":50},"least":{"$gt":0}},"s":{"genre_id":-1}}`,
		`SELECT genre_id, count(composer) AS n, max(milliseconds) AS longest FROM track GROUP BY genre_id HAVING count(composer) > 50 AND min(bytes) > 0 ORDER BY genre_id DESC NULLS LAST`},
	{"one group over all", `track($condition:@c,$group:@g){ n, least, longest, size }`,
		`{"c":{"genre_id":1},"g":{"agg":{"n":{"$count":"*"},"least":{"$min":"milliseconds"},"longest":{"$max":"milliseconds"},"size":{"$sum":"bytes"}}}}`,
		`SELECT count(*) AS n, min(milliseconds) AS least, max(milliseconds) AS longest, sum(bytes) AS size FROM track WHERE genre_id = 1`},
	{"average", `invoice_line($group:@g,$sort:@s,$limit:@l){ track_id, mean }`, `{"g":{"by":["track_id"],"agg":{"mean":{"$avg":"quantity"}}},"s":{"track_id":1},"l":12}`,
		`SELECT track_id, avg(quantity) AS mean FROM invoice_line GROUP BY track_id ORDER BY track_id LIMIT 12`},
	{"sort by a field of the parent", `album($condition:@c,$sort:@s){ title, artist { name } }`, `{"c":{"_id":{"$lt":40}},"s":{"artist.name":-1,"title":1}}`,
		`SELECT album_id AS "_id", title, artist.name AS "artist.name" FROM album JOIN artist ON artist.artist_id = album.artist_id WHERE album_id < 40
			ORDER BY artist.name DESC NULLS LAST, title, album_id`},
	{"a key of two columns", `playlist_track($condition:@c){ playlist_id, track { name } }`, `{"c":{"playlist_id":{"$in":[9,18,16]}}}`,
		`SELECT '["' || p.playlist_id || '","' || p.track_id || '"]' AS "_id", p.playlist_id, track.name AS "track.name" FROM playlist_track p
			JOIN track ON track.track_id = p.track_id WHERE p.playlist_id IN (9, 18, 16) ORDER BY p.playlist_id, p.track_id`},
	{"one row by a key of two columns", `playlist_track($condition:@c){ track_id }`, `{"c":{"_id":"[\"1\",\"3402\"]"}}`,
		`SELECT '["' || playlist_id || '","' || track_id || '"]' AS "_id", track_id FROM playlist_track WHERE playlist_id = 1 AND track_id = 3402`},
	{"two relations side by side", `customer($condition:@c){ support_rep { last_name }, invoice($sort:@s,$limit:@n){ total } }`, `{"c":{"country":"Canada"},"s":{"total":-1},"n":1}`,
		`SELECT c.customer_id AS "_id", e.last_name AS "support_rep.last_name", (SELECT max(total) FROM invoice i WHERE i.customer_id = c.customer_id) AS "invoice.total"
			FROM customer c LEFT JOIN employee e ON e.employee_id = c.support_rep_id WHERE c.country = 'Canada' ORDER BY 1`},
	{"no row", `genre($condition:@c){ name }`, `{"c":{"name":"Schlager"}}`, `SELECT genre_id AS "_id", name FROM genre WHERE name = 'Schlager'`},
}

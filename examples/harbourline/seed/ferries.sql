-- Piers, ferries, sailings, passengers and bookings of harbourline: made up, and the same each time.
-- The days begin with 2042-06-01; there are no names of real people.

CREATE TABLE piers (_id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, town TEXT, berths INTEGER, opened TEXT);
CREATE TABLE ferries (_id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, seats INTEGER NOT NULL, cars INTEGER, built INTEGER);
CREATE TABLE sailings (
  _id TEXT PRIMARY KEY NOT NULL, ferryId TEXT NOT NULL, fromPier TEXT NOT NULL, toPier TEXT NOT NULL, departs TEXT NOT NULL,
  minutes INTEGER, price TEXT, status TEXT, createdAt INTEGER, updatedAt INTEGER);
CREATE TABLE passengers (_id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, email TEXT, frequent INTEGER, createdAt INTEGER, updatedAt INTEGER);
CREATE TABLE bookings (
  _id TEXT PRIMARY KEY NOT NULL, sailingId TEXT NOT NULL, passengerId TEXT NOT NULL, seats INTEGER NOT NULL, car INTEGER,
  state TEXT, note TEXT, createdBy TEXT, createdAt INTEGER, updatedAt INTEGER);

-- What is removed stays in these.
CREATE TABLE piers_deleted (
  _id TEXT PRIMARY KEY NOT NULL, name TEXT, town TEXT, berths INTEGER, opened TEXT, createdAt INTEGER, updatedAt INTEGER, deletedAt INTEGER);
CREATE TABLE ferries_deleted (
  _id TEXT PRIMARY KEY NOT NULL, name TEXT, seats INTEGER, cars INTEGER, built INTEGER, createdAt INTEGER, updatedAt INTEGER, deletedAt INTEGER);
CREATE TABLE sailings_deleted (
  _id TEXT PRIMARY KEY NOT NULL, ferryId TEXT, fromPier TEXT, toPier TEXT, departs TEXT, minutes INTEGER, price TEXT, status TEXT,
  createdAt INTEGER, updatedAt INTEGER, deletedAt INTEGER);
CREATE TABLE passengers_deleted (
  _id TEXT PRIMARY KEY NOT NULL, name TEXT, email TEXT, frequent INTEGER, createdAt INTEGER, updatedAt INTEGER, deletedAt INTEGER);
CREATE TABLE bookings_deleted (
  _id TEXT PRIMARY KEY NOT NULL, sailingId TEXT, passengerId TEXT, seats INTEGER, car INTEGER, state TEXT, note TEXT, createdBy TEXT,
  createdAt INTEGER, updatedAt INTEGER, deletedAt INTEGER);

-- Writes with an idempotencyKey are remembered here.
CREATE TABLE tabellion_idempotency (
  scope TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, outcome TEXT NOT NULL, created INTEGER NOT NULL,
  PRIMARY KEY (scope, key));

CREATE INDEX idx_sailings_ferryId_departs ON sailings (ferryId, departs);
CREATE INDEX idx_sailings_fromPier_departs ON sailings (fromPier, departs);
CREATE INDEX idx_sailings_toPier ON sailings (toPier);
CREATE INDEX idx_sailings_departs ON sailings (departs);
CREATE UNIQUE INDEX idx_passengers_email ON passengers (email);
CREATE INDEX idx_bookings_sailingId ON bookings (sailingId);
CREATE INDEX idx_bookings_passengerId ON bookings (passengerId);

INSERT INTO piers VALUES
  ('north', 'North Pier', 'Skarvik', 3, '1987-05-14'),
  ('old', 'Old Quay', 'Skarvik', 1, '1911-08-01'),
  ('lind', 'Lindholm Pier', 'Lindholm', 2, '2004-04-30'),
  ('reef', 'Reef Landing', 'Outer Reef', 1, NULL),
  ('fort', 'Fort Steps', 'Kastell', 2, '1968-06-21');

INSERT INTO ferries VALUES
  ('tern', 'Arctic Tern', 180, 24, 2019),
  ('eider', 'Eider', 96, 0, 1998),
  ('skua', 'Great Skua', 240, 40, 2027),
  ('wagtail', 'Wagtail', 48, 0, 1984);

-- Fourteen days, each with fourteen sailings on seven lines.
WITH RECURSIVE
  day(d) AS (SELECT 0 UNION ALL SELECT d + 1 FROM day WHERE d < 13),
  line(n, ferry, a, b, minutes, price) AS (VALUES
    (0, 'tern', 'north', 'lind', 35, '120.00'), (1, 'tern', 'lind', 'north', 35, '120.00'),
    (2, 'skua', 'north', 'fort', 70, '215.50'), (3, 'skua', 'fort', 'north', 70, '215.50'),
    (4, 'eider', 'old', 'reef', 20, '65.00'), (5, 'eider', 'reef', 'old', 20, '65.00'),
    (6, 'wagtail', 'old', 'fort', 55, '89.90')),
  turn(t) AS (VALUES (0), (1))
INSERT INTO sailings
SELECT printf('s%02d%d%d', d, n, t), ferry, a, b,
  strftime('%Y-%m-%dT%H:%M:%SZ', '2042-06-01', '+' || d || ' days', '+' || (6 + 7 * t + n) || ' hours', '+' || (n * 5) || ' minutes'),
  minutes, price,
  CASE WHEN (d * 14 + n * 2 + t) % 23 = 7 THEN 'cancelled' WHEN d < 5 THEN 'sailed' WHEN d = 5 AND t = 0 THEN 'boarding' ELSE 'planned' END,
  2285193600000 + d, 2285193600000 + d
FROM day, line, turn ORDER BY d, t, n;

WITH RECURSIVE
  n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 79),
  first(k, name) AS (VALUES (0, 'Ada'), (1, 'Birk'), (2, 'Cato'), (3, 'Dag'), (4, 'Embla'), (5, 'Frey'), (6, 'Gro'), (7, 'Helge')),
  last(k, name) AS (VALUES (0, 'Almlund'), (1, 'Bergli'), (2, 'Dalsund'), (3, 'Ekrem'), (4, 'Fjellvik'), (5, 'Grindal'), (6, 'Holmsen'), (7, 'Lunde'), (8, 'Myrvold'), (9, 'Nesheim'))
INSERT INTO passengers
SELECT printf('p%03d', i), first.name || ' ' || last.name, lower(first.name || '.' || last.name) || '@example.org', i % 3 = 0,
  2285193600000 + i, 2285193600000 + i
FROM n JOIN first ON first.k = i % 8 JOIN last ON last.k = i / 8 ORDER BY i;

-- Six hundred bookings. user:ana has made every eleventh.
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 599)
INSERT INTO bookings
SELECT printf('b%04d', i), printf('s%02d%d%d', (i * 5) % 14, (i * 3) % 7, i % 2), printf('p%03d', (i * 37) % 80),
  1 + (i * 7) % 4, i % 5 = 0, CASE i % 6 WHEN 0 THEN 'held' WHEN 5 THEN 'cancelled' ELSE 'paid' END,
  CASE WHEN i % 40 = 3 THEN 'wheelchair' END, CASE WHEN i % 11 = 0 THEN 'ana' ELSE 'counter' END,
  2285193600000 + i * 1000, 2285193600000 + i * 1000
FROM n ORDER BY i;

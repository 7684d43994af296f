package sqlite

import (
	"errors"
	"fmt"
)

// ErrNewerFormat: the data folder was written by a newer program. Nothing was changed.
var ErrNewerFormat = errors.New("the data folder has a newer format than this program knows")

// errForeign: the database file was not made by this program.
var errForeign = errors.New("the database file does not belong to this program")

// applicationID marks the database file as ours: "tblN" in the SQLite header.
const applicationID = 0x74626c4e

// migrations lead from one format to the next; the format is their number, kept as user_version. Each runs in one
// transaction with its new number. Never edit one that was released.
//
// Shape: a document is one row of heads; its revisions are appended to revisions, so that a write touches the end of
// that table whatever the ids are. doc, the number of a document, is seq of its first revision. Text compares
// bytewise (BINARY), which is the order the contract asks for. Times of documents, artifacts and what expires are
// milliseconds, others microseconds, since 1970.
//
// From format 2 on: revisions.superseded is when the revision stopped being the head, filled in only when the one
// behind it is purged. inbound says of whom its source is, so that references are listed in order from its key. An
// upload is open while closed is NULL. usage.bytes holds payloads, artifacts and what open uploads have reserved, which
// is in usage.reserved by itself; each namespace that ever held something has a row there. idempotency.sum is NULL in
// records of format 1, which had no checksum.
var migrations = []string{`
CREATE TABLE heads (
	namespace TEXT NOT NULL,
	id TEXT NOT NULL,
	doc INTEGER NOT NULL,
	revision INTEGER NOT NULL,
	deleted INTEGER NOT NULL,
	seq INTEGER NOT NULL,
	created INTEGER NOT NULL,
	updated INTEGER NOT NULL,
	kind TEXT NOT NULL,
	schema_version TEXT NOT NULL,
	PRIMARY KEY (namespace, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX heads_live ON heads (namespace, id) WHERE deleted = 0;
CREATE INDEX heads_kind ON heads (namespace, kind, deleted, id);

CREATE TABLE revisions (
	seq INTEGER PRIMARY KEY,
	doc INTEGER NOT NULL,
	revision INTEGER NOT NULL,
	deleted INTEGER NOT NULL,
	updated INTEGER NOT NULL,
	sum INTEGER NOT NULL,
	kind TEXT NOT NULL,
	schema_version TEXT NOT NULL,
	refs BLOB,
	payload BLOB
) STRICT;
CREATE UNIQUE INDEX revisions_doc ON revisions (doc, revision);

CREATE TABLE inbound (
	type TEXT NOT NULL,
	namespace TEXT NOT NULL,
	id TEXT NOT NULL,
	revision INTEGER NOT NULL,
	source INTEGER NOT NULL REFERENCES revisions (seq) ON DELETE CASCADE,
	PRIMARY KEY (namespace, id, type, revision, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX inbound_source ON inbound (source);

CREATE TABLE idempotency (
	seq INTEGER PRIMARY KEY,
	namespace TEXT NOT NULL,
	key TEXT NOT NULL,
	at INTEGER NOT NULL,
	fingerprint BLOB NOT NULL,
	id TEXT NOT NULL,
	revision INTEGER NOT NULL,
	value BLOB
) STRICT;
CREATE UNIQUE INDEX idempotency_key ON idempotency (namespace, key);

CREATE TABLE usage (
	namespace TEXT PRIMARY KEY,
	bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_writers (
	number INTEGER PRIMARY KEY,
	name TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE audit_rows (
	place INTEGER PRIMARY KEY,
	hash BLOB NOT NULL,
	row BLOB NOT NULL
) STRICT;
CREATE TABLE audit_heads (
	writer TEXT NOT NULL,
	position INTEGER NOT NULL,
	hash BLOB NOT NULL,
	at TEXT NOT NULL,
	cites BLOB,
	signature BLOB,
	PRIMARY KEY (writer, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
	id TEXT PRIMARY KEY,
	hint TEXT NOT NULL,
	user TEXT NOT NULL,
	body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX api_keys_hint ON api_keys (hint);
CREATE INDEX api_keys_user ON api_keys (user);

CREATE TABLE seal_keys (
	seq INTEGER PRIMARY KEY,
	id INTEGER NOT NULL UNIQUE,
	created TEXT NOT NULL,
	secret BLOB NOT NULL
) STRICT;

CREATE TABLE nonces (
	id TEXT PRIMARY KEY,
	until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX nonces_until ON nonces (until);

CREATE TABLE secrets (
	name TEXT PRIMARY KEY,
	value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
`, `
ALTER TABLE revisions ADD COLUMN superseded INTEGER;

ALTER TABLE idempotency ADD COLUMN sum INTEGER;

ALTER TABLE inbound RENAME TO inbound_before;
CREATE TABLE inbound (
	namespace TEXT NOT NULL,
	id TEXT NOT NULL,
	type TEXT NOT NULL,
	revision INTEGER NOT NULL,
	source_namespace TEXT NOT NULL,
	source_id TEXT NOT NULL,
	source_revision INTEGER NOT NULL,
	source INTEGER NOT NULL REFERENCES revisions (seq) ON DELETE CASCADE,
	PRIMARY KEY (namespace, id, type, revision, source_namespace, source_id, source_revision)
) STRICT, WITHOUT ROWID;
INSERT INTO inbound SELECT b.namespace, b.id, b.type, iif(b.type = 'document', b.revision, 0), h.namespace, h.id, r.revision, r.seq
FROM inbound_before b JOIN revisions r ON r.seq = b.source JOIN heads h ON h.doc = r.doc;
DROP TABLE inbound_before;
CREATE INDEX inbound_source ON inbound (source);

ALTER TABLE usage ADD COLUMN reserved INTEGER NOT NULL DEFAULT 0;
INSERT OR IGNORE INTO usage (namespace, bytes) SELECT DISTINCT namespace, 0 FROM heads;

CREATE TABLE uploads (
	seq INTEGER PRIMARY KEY,
	namespace TEXT NOT NULL,
	id TEXT NOT NULL,
	artifact TEXT NOT NULL,
	owner TEXT NOT NULL,
	mime_type TEXT NOT NULL,
	size INTEGER NOT NULL,
	digest BLOB NOT NULL,
	expires INTEGER NOT NULL,
	state TEXT NOT NULL,
	closed INTEGER,
	sum INTEGER NOT NULL,
	provenance BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX uploads_id ON uploads (namespace, id);
CREATE UNIQUE INDEX uploads_artifact ON uploads (namespace, artifact);
CREATE INDEX uploads_open ON uploads (expires) WHERE closed IS NULL;
CREATE INDEX uploads_reserved ON uploads (namespace, expires, size) WHERE closed IS NULL;
CREATE INDEX uploads_owner ON uploads (owner, expires) WHERE closed IS NULL;
CREATE INDEX uploads_closed ON uploads (closed) WHERE closed IS NOT NULL;
CREATE INDEX uploads_received ON uploads (digest) WHERE state = 'received';

CREATE TABLE artifacts (
	seq INTEGER PRIMARY KEY,
	namespace TEXT NOT NULL,
	id TEXT NOT NULL,
	mime_type TEXT NOT NULL,
	size INTEGER NOT NULL,
	digest BLOB NOT NULL,
	created INTEGER NOT NULL,
	sum INTEGER NOT NULL,
	provenance BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX artifacts_id ON artifacts (namespace, id);
CREATE INDEX artifacts_digest ON artifacts (digest);
`}

// checkFormat refuses a database of another program or a newer format, before anything is written to it.
func checkFormat(c *conn) (format int64, err error) {
	app, err := c.number("PRAGMA application_id")
	if err != nil {
		return 0, fmt.Errorf("read format: %w", err)
	}
	format, err = c.number("PRAGMA user_version")
	if err != nil {
		return 0, fmt.Errorf("read format: %w", err)
	}
	tables, err := c.number("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return 0, fmt.Errorf("read format: %w", err)
	}
	switch {
	case app == 0 && format == 0 && tables == 0:
		return 0, nil // new, or killed before the first migration was committed
	case app != applicationID:
		return 0, errForeign
	case format > int64(len(migrations)):
		return 0, fmt.Errorf("%w: it is %d, known are 1 to %d", ErrNewerFormat, format, len(migrations))
	}
	return format, nil
}

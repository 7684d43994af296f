package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// plain is a database as a program without any layer uses it: prepared statements on one connection, scanned into structs.
type plain interface {
	// query hands the scan of each row to each.
	query(ctx context.Context, text string, args []any, each func(scan func(...any) error) error) error
	// list is an argument that holds several ids; in is the condition that a column is among them.
	list(ids []string) any
	in(column, argument string) string
	// top is the statement for the two dearest books of each author of the argument ?1.
	top() string
	close() error
}

// plainSQLite is the driver that tabellion uses, through database/sql.
type plainSQLite struct {
	db    *sql.DB
	stmts map[string]*sql.Stmt
}

// openPlainSQLite opens a file for one connection.
func openPlainSQLite(path string) (*plainSQLite, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &plainSQLite{db, map[string]*sql.Stmt{}}, nil
}

// query prepares each text once.
func (p *plainSQLite) query(ctx context.Context, text string, args []any, each func(scan func(...any) error) error) error {
	s := p.stmts[text]
	if s == nil {
		var err error
		if s, err = p.db.PrepareContext(ctx, text); err != nil {
			return err
		}
		p.stmts[text] = s
	}
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// list is a JSON array: SQLite has no others.
func (p *plainSQLite) list(ids []string) any {
	text, _ := json.Marshal(ids) // of strings, which cannot fail
	return string(text)
}

// in reads that array.
func (p *plainSQLite) in(column, argument string) string {
	return column + " IN (SELECT value FROM json_each(" + argument + "))"
}

// top looks two ids up for each author.
func (p *plainSQLite) top() string {
	return `SELECT b."authorId", b."title", b."price" FROM json_each(?1) a JOIN "books" b ON b."_id" IN
		(SELECT t."_id" FROM "books" t WHERE t."authorId" = a.value ORDER BY t."price" DESC, t."_id" LIMIT 2)`
}

// close ends the connection.
func (p *plainSQLite) close() error { return p.db.Close() }

// plainPostgres is pgx without a pool.
type plainPostgres struct{ conn *pgx.Conn }

// query lets pgx keep prepared statements.
func (p *plainPostgres) query(ctx context.Context, text string, args []any, each func(scan func(...any) error) error) error {
	rows, err := p.conn.Query(ctx, strings.ReplaceAll(text, "?", "$"), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// list is an array.
func (p *plainPostgres) list(ids []string) any { return ids }

// in compares with an array.
func (p *plainPostgres) in(column, argument string) string {
	return column + " = ANY(" + argument + ")"
}

// top reads two rows for each author.
func (p *plainPostgres) top() string {
	return `SELECT b."authorId", b."title", b."price" FROM unnest(?1::text[]) a(id) CROSS JOIN LATERAL
		(SELECT t."authorId", t."title", t."price" FROM "books" t WHERE t."authorId" = a.id ORDER BY t."price" DESC NULLS LAST, t."_id" LIMIT 2) b`
}

// close ends the connection.
func (p *plainPostgres) close() error { return p.conn.Close(context.Background()) }

// The rows of the floor, as JSON shows them.
type (
	bookRow struct {
		ID       string  `json:"_id"`
		AuthorID string  `json:"authorId"`
		Title    string  `json:"title"`
		Genre    string  `json:"genre"`
		Pages    int64   `json:"pages"`
		Price    float64 `json:"price"`
		Created  int64   `json:"createdAt,omitempty"`
		Updated  int64   `json:"updatedAt,omitempty"`
	}
	authorRow struct {
		ID      string  `json:"_id"`
		Name    string  `json:"name"`
		City    string  `json:"city"`
		Country string  `json:"country"`
		Status  string  `json:"status"`
		Rank    int64   `json:"rank"`
		Score   float64 `json:"score"`
	}
	titleRow struct {
		Title string  `json:"title"`
		Price float64 `json:"price"`
	}
	parentRow struct {
		ID    string     `json:"_id"`
		Name  string     `json:"name"`
		Books []titleRow `json:"books"`
	}
	countedRow struct {
		ID    string `json:"_id"`
		Name  string `json:"name"`
		Count int64  `json:"bookCount"`
		Pages *int64 `json:"pageSum"`
	}
	rankedRow struct {
		ID   string `json:"_id"`
		Name string `json:"name"`
		Rank int64  `json:"rank"`
	}
	genreRow struct {
		Genre string  `json:"genre"`
		N     int64   `json:"n"`
		Total int64   `json:"total"`
		Mean  float64 `json:"mean"`
	}
)

// read scans all rows of a statement.
func read[T any](ctx context.Context, p plain, text string, args []any, scan func(*T, func(...any) error) error) ([]T, error) {
	var out []T
	err := p.query(ctx, text, args, func(row func(...any) error) error {
		var t T
		err := scan(&t, row)
		out = append(out, t)
		return err
	})
	return out, err
}

// written is the rows as JSON.
func written[T any](rows []T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(rows)
}

// bookColumns are those of bookRow without times.
const bookColumns = `"_id", "authorId", "title", "genre", "pages", "price"`

// floorGet finds a book.
func floorGet(ctx context.Context, p plain, c call) ([]byte, error) {
	rows, err := read(ctx, p, `SELECT `+bookColumns+` FROM "books" WHERE "_id" = ?1`, []any{c.ID}, func(b *bookRow, scan func(...any) error) error {
		return scan(&b.ID, &b.AuthorID, &b.Title, &b.Genre, &b.Pages, &b.Price)
	})
	if err == nil && len(rows) != 1 {
		err = fmt.Errorf("%d rows with the id %s", len(rows), c.ID)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(rows[0])
}

// limitOf is $limit of a page.
func limitOf(c call) int64 { n, _ := c.Params.Get("l").Int(); return n }

// firstAuthors orders a page as the operations do.
const firstAuthors = ` FROM "authors" ORDER BY "rank" NULLS FIRST, "_id" LIMIT ?1`

// floorList reads a page of authors.
func floorList(ctx context.Context, p plain, c call) ([]byte, error) {
	return written(read(ctx, p, `SELECT "_id", "name", "city", "country", "status", "rank", "score"`+firstAuthors, []any{limitOf(c)},
		func(a *authorRow, scan func(...any) error) error {
			return scan(&a.ID, &a.Name, &a.City, &a.Country, &a.Status, &a.Rank, &a.Score)
		}))
}

// found are the ids of a page, and where each stands in it.
func found[T any](page []T, id func(T) string) (ids []string, at map[string]int) {
	at = make(map[string]int, len(page))
	for i, row := range page {
		ids, at[id(row)] = append(ids, id(row)), i
	}
	return ids, at
}

// withBooks reads a page of authors, and the books that a statement gives for them.
func withBooks(ctx context.Context, p plain, c call, text string) ([]byte, error) {
	page, err := read(ctx, p, `SELECT "_id", "name"`+firstAuthors, []any{limitOf(c)}, func(a *parentRow, scan func(...any) error) error {
		return scan(&a.ID, &a.Name)
	})
	if err != nil {
		return nil, err
	}
	ids, at := found(page, func(a parentRow) string { return a.ID })
	err = p.query(ctx, text, []any{p.list(ids)}, func(scan func(...any) error) error {
		var author string
		var b titleRow
		if err := scan(&author, &b.Title, &b.Price); err != nil {
			return err
		}
		of := &page[at[author]]
		of.Books = append(of.Books, b)
		return nil
	})
	return written(page, err)
}

// floorChildren reads a page of authors and all their books.
func floorChildren(ctx context.Context, p plain, c call) ([]byte, error) {
	return withBooks(ctx, p, c, `SELECT "authorId", "title", "price" FROM "books" WHERE `+p.in(`"authorId"`, "?1")+` ORDER BY "_id"`)
}

// floorTop reads a page of authors and the two dearest books of each.
func floorTop(ctx context.Context, p plain, c call) ([]byte, error) {
	return withBooks(ctx, p, c, p.top())
}

// floorAggregates reads a page of authors, and counts their books.
func floorAggregates(ctx context.Context, p plain, c call) ([]byte, error) {
	page, err := read(ctx, p, `SELECT "_id", "name"`+firstAuthors, []any{limitOf(c)}, func(a *countedRow, scan func(...any) error) error {
		return scan(&a.ID, &a.Name)
	})
	if err != nil {
		return nil, err
	}
	ids, at := found(page, func(a countedRow) string { return a.ID })
	text := `SELECT "authorId", count(*), sum("pages") FROM "books" WHERE ` + p.in(`"authorId"`, "?1") + ` GROUP BY "authorId"`
	err = p.query(ctx, text, []any{p.list(ids)}, func(scan func(...any) error) error {
		var author string
		var one countedRow
		if err := scan(&author, &one.Count, &one.Pages); err != nil {
			return err
		}
		page[at[author]].Count, page[at[author]].Pages = one.Count, one.Pages
		return nil
	})
	return written(page, err)
}

// floorPredicate reads a page of the authors who have a dear book.
func floorPredicate(ctx context.Context, p plain, c call) ([]byte, error) {
	text := `SELECT "_id", "name", "rank" FROM "authors" a WHERE EXISTS (SELECT 1 FROM "books" b WHERE b."authorId" = a."_id" AND b."price" >= ?2)
		ORDER BY "rank" NULLS FIRST, "_id" LIMIT ?1`
	least := c.Params.At("/c/books/$filter/price/$gte").Float()
	return written(read(ctx, p, text, []any{limitOf(c), least}, func(a *rankedRow, scan func(...any) error) error {
		return scan(&a.ID, &a.Name, &a.Rank)
	}))
}

// floorGroups groups all books.
func floorGroups(ctx context.Context, p plain, _ call) ([]byte, error) {
	text := `SELECT "genre", count(*), sum("pages"), avg("price") FROM "books" GROUP BY "genre" ORDER BY "genre"`
	return written(read(ctx, p, text, nil, func(g *genreRow, scan func(...any) error) error {
		return scan(&g.Genre, &g.N, &g.Total, &g.Mean)
	}))
}

// floorBook is a document to write, with an id of its own and the times.
func floorBook(data canonjson.Value, n int) (bookRow, error) {
	var b bookRow
	err := json.Unmarshal(data.AppendJSON(nil), &b)
	now := time.Now()
	b.ID = fmt.Sprintf("BK%X%08X", now.UnixNano(), n)
	b.Created, b.Updated = now.UnixMilli(), now.UnixMilli()
	return b, err
}

// writeBooks inserts books with one statement.
func writeBooks(ctx context.Context, p plain, books []bookRow) error {
	var text strings.Builder
	text.WriteString(`INSERT INTO "books" (` + bookColumns + `, "createdAt", "updatedAt", "__present") VALUES `)
	args := make([]any, 0, 9*len(books))
	for i, b := range books {
		if i > 0 {
			text.WriteString(", ")
		}
		n := 9 * i
		fmt.Fprintf(&text, "(?%d, ?%d, ?%d, ?%d, ?%d, ?%d, ?%d, ?%d, ?%d)", n+1, n+2, n+3, n+4, n+5, n+6, n+7, n+8, n+9)
		args = append(args, b.ID, b.AuthorID, b.Title, b.Genre, b.Pages, b.Price, b.Created, b.Updated, bookPresent)
	}
	return p.query(ctx, text.String(), args, func(func(...any) error) error { return nil })
}

// floorInsert adds a book.
func floorInsert(ctx context.Context, p plain, c call) ([]byte, error) {
	b, err := floorBook(c.Data, 0)
	if err != nil {
		return nil, err
	}
	if err := writeBooks(ctx, p, []bookRow{b}); err != nil {
		return nil, err
	}
	return json.Marshal(b)
}

// floorInsertMany adds books by one statement.
func floorInsertMany(ctx context.Context, p plain, c call) ([]byte, error) {
	var books []bookRow
	for i, doc := range c.Data.Items() {
		b, err := floorBook(doc, i)
		if err != nil {
			return nil, err
		}
		books = append(books, b)
	}
	return written(books, writeBooks(ctx, p, books))
}

// floorUpdate changes a book.
func floorUpdate(ctx context.Context, p plain, c call) ([]byte, error) {
	text := `UPDATE "books" SET "price" = ?2, "updatedAt" = ?3 WHERE "_id" = ?1 RETURNING ` + bookColumns + `, "createdAt", "updatedAt"`
	rows, err := read(ctx, p, text, []any{c.ID, c.Data.Get("price").Float(), time.Now().UnixMilli()}, func(b *bookRow, scan func(...any) error) error {
		return scan(&b.ID, &b.AuthorID, &b.Title, &b.Genre, &b.Pages, &b.Price, &b.Created, &b.Updated)
	})
	if err == nil && len(rows) != 1 {
		err = fmt.Errorf("%d rows with the id %s", len(rows), c.ID)
	}
	return written(rows, err)
}

package inspect

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Names of dangers, by which an operator accepts one in the configuration.
const (
	Superuser    = "superuser"     // the role may do everything; its other dangers are not listed
	BecomesSuper = "becomes-super" // the role can become a superuser; its other dangers are not listed
	BypassRLS    = "bypass-rls"    // row security does not hold for it
	CreatesRoles = "creates-roles"
	CreatesDBs   = "creates-databases"
	Replicates   = "replicates"
	ServerFiles  = "server-files"  // reads or writes files of the database server
	Programs     = "programs"      // runs programs on the database server
	Functions    = "functions"     // may call functions that reach files or other servers
	Owner        = "owner"         // owns tables, so that it can change and drop them
	Creates      = "creates"       // creates objects in a schema
	ReaderWrites = "reader-writes" // the reading role can write
	Writable     = "writable"      // SQLite: the reading handle can write
	TrustsSchema = "trusts-schema" // SQLite: functions with effects may be called from views
)

// PostgresRights says what the roles of the two pools can do beyond what they need. writer may be nil.
func PostgresRights(ctx context.Context, reader, writer *pgxpool.Pool) (plan.RoleReport, error) {
	var report plan.RoleReport
	var err error
	if report.Reader, err = postgresRole(ctx, reader, true); err != nil {
		return report, fmt.Errorf("ask what the reading role can do: %w", err)
	}
	if writer == nil {
		return report, nil
	}
	if report.Writer, err = postgresRole(ctx, writer, false); err != nil {
		return report, fmt.Errorf("ask what the writing role can do: %w", err)
	}
	return report, nil
}

// probe asks for one danger: the statement gives names of what the right is about, none when there is no danger.
type probe struct {
	name      string
	readers   bool // only of a reading role
	text      string
	statement string
}

// members are the role itself and all roles that it could take on with SET ROLE, inherited or not, as m.
const members = `(SELECT * FROM pg_roles WHERE pg_has_role(current_user, oid, 'MEMBER')) AS m`

// ordinary is the condition on a schema n that is not the system's.
const ordinary = `n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'`

// relations are the tables and views of ordinary schemas, as c in n.
const relations = `pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND ` + ordinary

// probes are asked in this order.
var probes = []probe{
	{BypassRLS, false, "row security does not hold for it", `SELECT rolname FROM ` + members + ` WHERE rolbypassrls`},
	{CreatesRoles, false, "it can create and change roles", `SELECT rolname FROM ` + members + ` WHERE rolcreaterole`},
	{CreatesDBs, false, "it can create databases", `SELECT rolname FROM ` + members + ` WHERE rolcreatedb`},
	{Replicates, false, "it can read all data by replication", `SELECT rolname FROM ` + members + ` WHERE rolreplication`},
	{ServerFiles, false, "it is a member of %s, and so can reach files of the database server",
		`SELECT rolname FROM ` + members + ` WHERE rolname IN ('pg_read_server_files', 'pg_write_server_files')`},
	{Programs, false, "it is a member of %s, and so can run programs on the database server (COPY ... PROGRAM)",
		`SELECT rolname FROM ` + members + ` WHERE rolname = 'pg_execute_server_program'`},
	{Functions, false, "it may call functions that reach files or other servers: %s",
		`SELECT DISTINCT p.proname FROM pg_proc p CROSS JOIN ` + members + ` WHERE (p.proname IN ('pg_read_file', 'pg_read_binary_file',
			'pg_ls_dir', 'pg_stat_file', 'lo_import', 'lo_export', 'pg_file_write', 'pg_file_read', 'pg_file_unlink',
			'pg_file_rename', 'pg_logdir_ls') OR p.proname LIKE 'dblink%')
			AND has_function_privilege(m.oid, p.oid, 'EXECUTE') AND has_schema_privilege(m.oid, p.pronamespace, 'USAGE')`},
	{Owner, false, "it owns tables and can change or drop them: %s",
		`SELECT n.nspname || '.' || c.relname FROM ` + relations + ` WHERE pg_has_role(current_user, c.relowner, 'MEMBER')`},
	{Creates, false, "it can create tables and functions in the schemas %s",
		`SELECT DISTINCT n.nspname FROM pg_namespace n CROSS JOIN ` + members + ` WHERE ` + ordinary + `
			AND has_schema_privilege(m.oid, n.oid, 'CREATE')`},
	{ReaderWrites, true, "it is for reading, and can write to %s",
		`SELECT DISTINCT n.nspname || '.' || c.relname FROM ` + relations + ` CROSS JOIN ` + members + `
			WHERE has_schema_privilege(m.oid, n.oid, 'USAGE') AND (has_table_privilege(m.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
				OR has_any_column_privilege(m.oid, c.oid, 'INSERT, UPDATE'))`},
}

// postgresRole asks what the pool's role can do.
func postgresRole(ctx context.Context, pool *pgxpool.Pool, reads bool) (plan.Role, error) {
	var role plan.Role
	var super, becomes bool
	err := pool.QueryRow(ctx, `SELECT current_user, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
		EXISTS (SELECT 1 FROM `+members+` WHERE rolsuper)`).Scan(&role.Name, &super, &becomes)
	switch {
	case err != nil:
		return role, err
	case super:
		role.Dangers = []plan.Danger{{Name: Superuser, Text: "it is a superuser: it can do everything, run programs on the database server too"}}
		return role, nil
	case becomes:
		role.Dangers = []plan.Danger{{Name: BecomesSuper, Text: "it is a member of a superuser's role and can become it"}}
		return role, nil
	}
	for _, p := range probes {
		if p.readers && !reads {
			continue
		}
		rows, err := pool.Query(ctx, "SELECT x::text FROM ("+p.statement+") AS found(x) ORDER BY 1")
		if err != nil {
			return role, err
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return role, fmt.Errorf("%s: %w", p.name, err)
		}
		if len(names) > 0 {
			role.Dangers = append(role.Dangers, plan.Danger{Name: p.name, Text: filled(p.text, names)})
		}
	}
	return role, nil
}

// filled puts names into a sentence that has a place for them.
func filled(text string, names []string) string {
	if !strings.Contains(text, "%s") {
		return text
	}
	const shown = 5
	list := strings.Join(names[:min(len(names), shown)], ", ")
	if len(names) > shown {
		list += fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return fmt.Sprintf(text, list)
}

// SQLiteRights says what the two handles can do beyond what they need. SQLite has no roles: what a handle can do is what it
// was opened with. writer may be nil.
func SQLiteRights(ctx context.Context, reader, writer *sql.DB) (plan.RoleReport, error) {
	report := plan.RoleReport{Reader: plan.Role{Name: "read handle"}}
	var queryOnly bool
	if err := reader.QueryRowContext(ctx, "PRAGMA query_only").Scan(&queryOnly); err != nil {
		return report, fmt.Errorf("ask what the read handle can do: %w", err)
	}
	if !queryOnly {
		report.Reader.Dangers = append(report.Reader.Dangers, plan.Danger{Name: Writable,
			Text: "the handle for reading could write: it is not opened with query_only"})
	}
	if err := trusting(ctx, reader, &report.Reader); err != nil || writer == nil {
		return report, err
	}
	report.Writer.Name = "write handle"
	return report, trusting(ctx, writer, &report.Writer)
}

// trusting adds the danger that a handle lets views and triggers of the file call functions with effects.
func trusting(ctx context.Context, db *sql.DB, role *plan.Role) error {
	var trusts bool
	if err := db.QueryRowContext(ctx, "PRAGMA trusted_schema").Scan(&trusts); err != nil {
		return fmt.Errorf("ask what the %s can do: %w", role.Name, err)
	}
	if trusts {
		role.Dangers = append(role.Dangers, plan.Danger{Name: TrustsSchema,
			Text: "views and triggers in the file may call functions with effects: it is not opened with trusted_schema=OFF"})
	}
	return nil
}

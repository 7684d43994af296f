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
	BecomesSuper = "becomes-super" // the role can become a superuser
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

// ordinary is the condition on a schema n that is not the system's.
const ordinary = `n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'`

// probes are asked in this order. Membership counts where the role could take it on (SET ROLE).
var probes = []probe{
	{BecomesSuper, false, "it is a member of a superuser's role (%s) and can become it",
		`SELECT rolname FROM pg_roles WHERE rolsuper AND pg_has_role(current_user, oid, 'MEMBER')`},
	{BypassRLS, false, "row security does not hold for it",
		`SELECT rolname FROM pg_roles WHERE rolname = current_user AND rolbypassrls`},
	{CreatesRoles, false, "it can create and change roles",
		`SELECT rolname FROM pg_roles WHERE rolname = current_user AND rolcreaterole`},
	{CreatesDBs, false, "it can create databases",
		`SELECT rolname FROM pg_roles WHERE rolname = current_user AND rolcreatedb`},
	{Replicates, false, "it can read all data by replication",
		`SELECT rolname FROM pg_roles WHERE rolname = current_user AND rolreplication`},
	{ServerFiles, false, "it is a member of %s, and so can reach files of the database server",
		`SELECT rolname FROM pg_roles WHERE rolname IN ('pg_read_server_files', 'pg_write_server_files')
			AND pg_has_role(current_user, oid, 'MEMBER')`},
	{Programs, false, "it is a member of %s, and so can run programs on the database server (COPY ... PROGRAM)",
		`SELECT rolname FROM pg_roles WHERE rolname = 'pg_execute_server_program' AND pg_has_role(current_user, oid, 'MEMBER')`},
	{Functions, false, "it may call functions that reach files or other servers: %s",
		`SELECT DISTINCT p.proname FROM pg_proc p WHERE (p.proname IN ('pg_read_file', 'pg_read_binary_file', 'pg_ls_dir',
			'pg_stat_file', 'lo_import', 'lo_export', 'pg_file_write', 'pg_file_read', 'pg_file_unlink', 'pg_file_rename',
			'pg_logdir_ls') OR p.proname LIKE 'dblink%')
			AND has_function_privilege(p.oid, 'EXECUTE') AND has_schema_privilege(p.pronamespace, 'USAGE')
			AND p.prorettype <> 'trigger'::regtype`},
	{Owner, false, "it owns tables and can change or drop them: %s",
		`SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND ` + ordinary + `
			AND pg_has_role(current_user, c.relowner, 'MEMBER')`},
	{Creates, false, "it can create tables and functions in the schemas %s",
		`SELECT n.nspname FROM pg_namespace n WHERE ` + ordinary + ` AND has_schema_privilege(n.oid, 'CREATE')`},
	{ReaderWrites, true, "it is for reading, and can write to %s",
		`SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE c.relkind IN ('r', 'p', 'v', 'f') AND ` + ordinary + ` AND has_schema_privilege(n.oid, 'USAGE')
			AND (has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
				OR has_any_column_privilege(c.oid, 'INSERT, UPDATE'))`},
}

// postgresRole asks what the pool's role can do.
func postgresRole(ctx context.Context, pool *pgxpool.Pool, reads bool) (plan.Role, error) {
	var role plan.Role
	var super bool
	err := pool.QueryRow(ctx, `SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user`).Scan(&role.Name, &super)
	if err != nil {
		return role, err
	}
	if super {
		role.Dangers = []plan.Danger{{Name: Superuser, Text: "it is a superuser: it can do everything, run programs on the database server too"}}
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

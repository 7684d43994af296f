package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pool makes a pool of connections; the first is opened when it is needed.
func pool(ctx context.Context, url string, config Config, readOnly bool) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(url)
	if err != nil { // whose words may hold the URL, and with it a password
		return nil, errors.New("the URL of the database cannot be read; write it as postgres://role@host:5432/database?sslmode=verify-full")
	}
	if err := verified(&pc.ConnConfig.Config); err != nil {
		return nil, err
	}
	pc.MaxConns = int32(config.Conns)
	session(pc.ConnConfig, config, readOnly)
	pc.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: cancelPatience}
	}
	return pgxpool.NewWithConfig(ctx, pc)
}

// cancelPatience is how long the server may take to stop a statement before the connection is given up.
const cancelPatience = 2 * time.Second

// session sets what holds for all statements of a connection. Results are text that this program reads, so the forms of
// times, bytes and numbers are fixed.
func session(cc *pgx.ConnConfig, config Config, readOnly bool) {
	p := cc.RuntimeParams
	if p["application_name"] == "" {
		p["application_name"] = "tabellion"
	}
	if readOnly {
		p["default_transaction_read_only"] = "on"
	}
	p["statement_timeout"] = milliseconds(config.Timeout)
	p["lock_timeout"] = milliseconds(config.LockTimeout)
	p["idle_in_transaction_session_timeout"] = milliseconds(config.Timeout + config.LockTimeout)
	p["client_encoding"] = "UTF8"
	p["timezone"] = "UTC"
	p["datestyle"] = "ISO, YMD"
	p["intervalstyle"] = "iso_8601"
	p["bytea_output"] = "hex"
	p["extra_float_digits"] = "1"
	p["standard_conforming_strings"] = "on"
}

// milliseconds spells a time as PostgreSQL's settings take it.
func milliseconds(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }

// verified refuses connections to other machines that do not verify the server. All hosts of the URL are looked at, and
// the ways that the driver would fall back to.
func verified(c *pgconn.Config) error {
	refuse := func(host string, t *tls.Config) error {
		if loopback(host) || t != nil && verifies(t) {
			return nil
		}
		return fmt.Errorf("the connection to the database host %s would not verify the server; add sslmode=verify-full (and sslrootcert=FILE for a private authority) to its URL", host)
	}
	if err := refuse(c.Host, c.TLSConfig); err != nil {
		return err
	}
	for _, f := range c.Fallbacks {
		if err := refuse(f.Host, f.TLSConfig); err != nil {
			return err
		}
	}
	return nil
}

// verifies tells whether a configuration checks the server's certificate, by Go or by a check of the driver's own
// (verify-ca).
func verifies(t *tls.Config) bool {
	return !t.InsecureSkipVerify || t.VerifyPeerCertificate != nil || t.VerifyConnection != nil
}

// loopback tells whether a host is this machine: a loopback address, localhost, or the folder of a socket.
func loopback(host string) bool {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

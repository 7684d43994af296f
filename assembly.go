package tabellion

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/audit"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/clock"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
	"github.com/tabellion-mcp/tabellion/internal/operator"
	"github.com/tabellion-mcp/tabellion/internal/seal"
	"github.com/tabellion-mcp/tabellion/internal/store/sqlite"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
	"github.com/tabellion-mcp/tabellion/internal/transport/mcp"
	"github.com/tabellion-mcp/tabellion/internal/transport/ops"
	"github.com/tabellion-mcp/tabellion/persistence"
	"github.com/tabellion-mcp/tabellion/policy"
)

// instructions tell a client's model what this server is for.
const instructions = "Durable documents. A write names the revision it builds on and carries an idempotencyKey; after a lost answer, repeat it with the same key."

// sharedSessions is how many stdio sessions on one data folder find room at once, when all are busy: they are one
// principal, whose calls are counted together, and a session that waits is better than one whose calls are refused.
const sharedSessions = 4

// assemble opens the parts from the inside out. On an error Close takes back what was opened.
func (s *Server) assemble(ctx context.Context) error {
	go persistence.New(persistence.Config{}).Operations() // reads the schemas, once, while the disk is waited for
	pepper, err := s.pepper()
	if err != nil {
		return err
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	sealer, err := seal.New(ctx, s.store, s.clock, rand.Reader)
	if err != nil {
		return err
	}
	if err := s.openIdentity(pepper); err != nil {
		return err
	}
	decider, err := newDecider(s.cfg)
	if err != nil {
		return err
	}
	if s.catalog, err = s.newCatalog(sealer); err != nil {
		return err
	}
	s.gate = gate.New(gate.Config{
		Catalog: s.catalog, Decider: decider, Auth: s.auth, Sealer: sealer, Recorder: s.recorder, Once: s.store,
		Limits: s.cfg.Limits.Limits, Clock: s.clock, Log: s.log, Observer: s.metrics,
		Notify: func(c catalog.Change) { s.mcp.Notify(c) },
	})
	s.mcp = mcp.New(mcp.Config{
		Gate: s.gate, Catalog: s.catalog, Log: s.log,
		Info:          mcp.Info{Name: "tabellion", Title: s.cfg.Name, Version: Version(), Instructions: instructions},
		HTTPStatus200: s.cfg.Auth.HTTPStatus == 200, SSE: s.cfg.Transports.SSE,
		MaxBody: s.cfg.Limits.RequestBytes, StdioCalls: max(1, s.cfg.Limits.Concurrency/sharedSessions),
	})
	s.gauges()
	s.control, err = control.Listen(s.cfg.Data, control.Config{Run: s.gate.Run, Stdio: s.serveStdio, About: s.about, Log: s.log})
	if err != nil {
		return err
	}
	s.tasks.Go(func() { s.upkeep(sealer) })
	return nil
}

// sealAge is how old the key of cursors and request states may become, and upkeepEvery how often that is looked at.
const (
	sealAge     = 30 * 24 * time.Hour
	upkeepEvery = time.Hour
)

// upkeep does what a server does beside its calls, until Close: it compiles the schemas, so that the first calls do not
// wait for them, and rotates the sealing key when it is old.
func (s *Server) upkeep(sealer *seal.Sealer) {
	if err := s.catalog.Warm(); err != nil {
		s.log.Error("a schema of the catalog does not compile", "error", err)
	}
	debug.FreeOSMemory() // what the start needed is given back: an idle server is small
	tick := time.NewTicker(upkeepEvery)
	defer tick.Stop()
	for {
		rotated, err := sealer.RotateAfter(context.Background(), sealAge)
		switch {
		case err != nil:
			s.log.Warn("the sealing key could not be rotated; trying again in an hour", "error", err)
		case rotated:
			s.log.Info("the sealing key was rotated; cursors made with the old one stay good for their 15 minutes")
		}
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
	}
}

// pepper reads the configured pepper; none is nil.
func (s *Server) pepper() ([]byte, error) {
	if s.cfg.Auth.Pepper.IsZero() {
		return nil, nil
	}
	pepper, err := s.cfg.Auth.Pepper.Reveal(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("auth.pepper: %w", err)
	}
	return pepper, nil
}

// openStore opens the store and the audit trail on it.
func (s *Server) openStore(ctx context.Context) error {
	var err error
	s.store, err = sqlite.Open(ctx, s.cfg.Data, sqlite.Options{
		Durability: s.cfg.Persistence.Durability, Retention: s.cfg.Persistence.Limits.IdempotencyRetention, Clock: s.clock, Log: s.log,
	})
	if err != nil {
		return err
	}
	signer, err := audit.OpenSigner(s.cfg.Data, rand.Reader)
	if err != nil {
		return err
	}
	s.recorder, err = audit.NewRecorder(audit.RecorderConfig{Log: s.store, Dir: s.cfg.Data, Signer: signer, Clock: s.clock, Logger: s.log})
	return err
}

// openIdentity starts the check of API keys. Without auth.keys no key is accepted, though keys may be made.
func (s *Server) openIdentity(pepper []byte) error {
	c := identity.Config{Clock: s.clock, Pepper: pepper, Dev: s.cfg.Dev, Log: s.log}
	if s.cfg.Auth.Keys {
		c.Keys = s.store
	}
	var err error
	if s.auth, err = identity.NewAuthenticator(c); err != nil {
		return err
	}
	s.keys, err = identity.NewKeyService(identity.ServiceConfig{Keys: s.store, Auth: s.auth, Clock: s.clock, Random: rand.Reader, Pepper: pepper})
	return err
}

// newDecider makes the policy. Without a section the role admin, which only the local principal and keys made by it
// have, is all there is (middle, D6).
func newDecider(cfg *Config) (policy.Decider, error) {
	if cfg.Dev {
		return policy.Open{}, nil
	}
	var c policy.Config
	if cfg.Policy != nil {
		c = *cfg.Policy
	}
	return policy.New(c)
}

// newCatalog collects the operations. Without an open store they can be listed and not run.
func (s *Server) newCatalog(cursors persistence.Cursors) (*catalog.Catalog, error) {
	documents := persistence.Config{
		Cursors: cursors, Limits: s.cfg.Persistence.Limits, Durability: s.cfg.Persistence.Durability,
		ResponseBytes: s.cfg.Limits.ResponseBytes,
	}
	if s.store != nil {
		documents.Store = s.store
	}
	operations := persistence.New(documents).Operations()
	return catalog.New(s.cfg.ToolNames, append(operations, s.operatorOperations()...)...)
}

// about is what other processes on the folder are told.
func (s *Server) about() control.About {
	a := control.About{PID: os.Getpid(), Version: Version()}
	if p := s.address.Load(); p != nil {
		a.Address = *p
	}
	return a
}

// health is what /readyz shows.
func (s *Server) health() ops.Health {
	h := ops.Health{Store: s.store.Healthy(), Audit: s.recorder.Healthy(), Closing: s.closing.Load()}
	h.LostStore, h.LostReads = s.recorder.Losses()
	return h
}

// gauges shows the health in metrics too.
func (s *Server) gauges() {
	s.metrics.Gauge("tabellion_store_writable", func() float64 {
		if s.store.Healthy() != nil {
			return 0
		}
		return 1
	})
	s.metrics.Gauge("tabellion_audit_lost_entries", func() float64 {
		store, reads := s.recorder.Losses()
		return float64(store + reads)
	})
}

// shutdownRest is how long the last writes may take after the time for calls has run out.
const shutdownRest = 2 * time.Second

// Close stops taking calls, lets those under way finish until ctx ends, and closes the store (security requirements,
// R12). A second Close waits for the first and returns the same.
func (s *Server) Close(ctx context.Context) error {
	s.closed.Do(func() {
		s.closing.Store(true)
		s.err = errors.Join(s.closeTransports(ctx), s.closeParts(ctx))
	})
	return s.err
}

// joinedRest is how long joined stdio sessions may take to finish what was read of them.
const joinedRest = 5 * time.Second

// closeTransports ends the joined stdio sessions first: what was read of them is still served, so that nothing is
// refused that another process could take over. Then the others, side by side: each of them waits for calls.
func (s *Server) closeTransports(ctx context.Context) error {
	var all []error
	if s.control != nil {
		joined, cancel := context.WithTimeout(ctx, joinedRest)
		all = append(all, s.control.Close(joined))
		cancel()
	}
	closers := []func(context.Context) error{s.web.close}
	if s.mcp != nil {
		closers = append(closers, s.mcp.Close)
	}
	errs := make(chan error, len(closers))
	for _, c := range closers {
		go func() { errs <- c(ctx) }()
	}
	for range closers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// closeParts ends what stands on the store, and then the store. It gets time of its own: these are the last writes.
func (s *Server) closeParts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownRest)
	defer cancel()
	close(s.stop)
	s.tasks.Wait()
	var errs []error
	if s.auth != nil {
		errs = append(errs, s.auth.Close(ctx))
	}
	if s.recorder != nil {
		errs = append(errs, s.recorder.Close(ctx))
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	return errors.Join(errs...)
}

// operatorOperations are the operations of the command line and the control socket.
func (s *Server) operatorOperations() []*catalog.Operation {
	return operator.Operations(operator.Config{
		Keys: s.keys,
		Explain: func(ctx context.Context, subjects []string, c policy.Check) (policy.Decision, error) {
			return s.gate.Explain(ctx, subjects, c)
		},
		Health: func(context.Context) []operator.Part {
			return []operator.Part{{Name: "store", Err: s.store.Healthy()}, {Name: "audit", Err: s.recorder.Healthy()}}
		},
		Catalog: func() *catalog.Catalog { return s.catalog },
	})
}

// Explain tells what the policy of a configuration decides, and which rule, without opening a store.
func Explain(ctx context.Context, cfg *Config, subjects []string, c policy.Check) (policy.Decision, error) {
	d, err := newDecider(cfg)
	if err != nil {
		return policy.Decision{}, err
	}
	return gate.New(gate.Config{Decider: d, Clock: clock.System{}}).Explain(ctx, subjects, c)
}

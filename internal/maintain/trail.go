package maintain

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"

	"github.com/tabellion-mcp/tabellion/internal/audit"
)

// audit verifies the audit trail: every chain, and what the signed heads say of it.
func (c *checker) audit() error {
	c.o.Progress.tell(stageAudit, 0, c.report.AuditRows)
	log := c.i.AuditLog()
	key, err := c.verifyKey()
	if err != nil {
		return err
	}
	if key == nil { // the chains can be followed without it, the heads cannot
		heads, err := log.AuditHeads(c.ctx)
		if err != nil {
			return err
		}
		if len(heads) > 0 {
			c.add(KindAuditKey, "file "+auditKey, "it is not there or cannot be used, so that no signature could be verified")
		}
		log = unsigned{log}
		if key, _, err = ed25519.GenerateKey(rand.Reader); err != nil {
			return err
		}
	}
	report, err := audit.Verify(c.ctx, log, key)
	for _, d := range report.Damage {
		c.add(KindAuditDamaged, fmt.Sprintf("writer %s, position %d", d.Writer, d.Position), d.What)
	}
	c.o.Progress.tell(stageAudit, report.Rows, c.report.AuditRows)
	return err
}

// verifyKey reads the public half of the signing key; nil when there is none that can be used. None is made.
func (c *checker) verifyKey() (ed25519.PublicKey, error) {
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return nil, fmt.Errorf("look for the audit key: %w", err)
	}
	info, err := root.Stat(auditKey)
	root.Close()                                // it was only read
	if err != nil || !info.Mode().IsRegular() { // a pipe would keep the signer waiting
		return nil, nil // told of when heads are signed
	}
	signer, err := audit.OpenSigner(c.dir, rand.Reader)
	if err != nil {
		return nil, nil
	}
	return signer.Public(), nil
}

// unsigned is a trail without its heads.
type unsigned struct{ audit.Log }

// AuditHeads gives none.
func (unsigned) AuditHeads(context.Context) ([]audit.Head, error) { return nil, nil }

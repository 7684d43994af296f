// Package maintain looks after a data folder as a whole: it checks it, repairs what can be repaired, and makes and
// restores backups.
//
//	report, err := maintain.Check(ctx, dir, maintain.CheckOptions{ReadData: true})
//	if errors.Is(err, sqlite.ErrLocked) { ... a server has the folder: ask it, it calls CheckOpen ... }
//	if report.Damaged() { ... each finding names what is wrong, where, and what to do ... }
//
// Check proves the invariants of persistence.v1, section 10 (D1 to D4, U1 to U4), the audit trail and, with ReadData,
// every byte. Repair deletes nothing that it cannot prove unreachable (security requirements, R13). A backup is one
// point in time, also of a server at work; one that is not whole holds no backup.json and is never taken for whole.
package maintain

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/persistence"
)

// Names in a data folder and in a backup, which is laid out alike. The database's name is the store's to know.
const (
	blobFolder = "blobs"
	auditKey   = "audit.key"
)

// Progress is told how far a stage has come, in bytes or in rows; total is 0 when it is not known. It is called often,
// by one goroutine at a time, and may be nil.
type Progress func(stage string, done, total int64)

// Stages that Progress is told of, beside those of the rules of the database.
const (
	stageDatabase = "copying the database"      // bytes
	stageDigest   = "hashing the database"      // bytes
	stageCopy     = "copying artifacts"         // bytes
	stageRead     = "reading artifacts"         // bytes
	stageAudit    = "verifying the audit trail" // rows
)

// tell calls p unless it is nil.
func (p Progress) tell(stage string, done, total int64) {
	if p != nil {
		p(stage, done, total)
	}
}

// Finding is one thing that is not as it should be.
type Finding struct {
	// Kind is one word of a closed list: the constants of this package, and sqlite.FlawKinds.
	Kind string `json:"kind"`
	// Where names it: namespace/id@revision of a document, namespace/id of an artifact or upload, a file, a row.
	Where string `json:"where"`
	// Message says what is wrong, and Remedy what to do.
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
	// Damage tells that something is lost or wrong for callers. Without it, it is a leftover or a hint.
	Damage bool `json:"damage"`
}

// String is the finding on one line.
func (f Finding) String() string {
	return fmt.Sprintf("%s %s: %s; %s", f.Kind, f.Where, f.Message, f.Remedy)
}

// DamagedError is what Backup and Restore return when what they made or were given is not whole.
type DamagedError struct {
	Doing    string
	Findings []Finding // all of them damage
	Next     string    // what to do; "" when Doing tells
}

// Error names the first findings, and what to do.
func (e *DamagedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: it is damaged in %d places", e.Doing, len(e.Findings))
	for i, f := range e.Findings {
		if i == 3 {
			b.WriteString("; and more")
			break
		}
		fmt.Fprintf(&b, "; %s %s: %s", f.Kind, f.Where, f.Message)
	}
	if e.Next != "" {
		b.WriteString("; to go on, " + e.Next)
	}
	return b.String()
}

// ErrNotEmpty: a backup or a restore was to go where something is already. Nothing was changed.
var ErrNotEmpty = errors.New("it is not empty")

// ErrUnavailable is persistence.ErrUnavailable, for those who know no stores: the disk did not give what the work needed,
// which says nothing of damage. The error says what to do.
var ErrUnavailable = persistence.ErrUnavailable

// CheckOptions are those of Check. The zero value checks everything but the bytes of artifacts.
type CheckOptions struct {
	ReadData bool
	// Subset is the share of the blobs to read with ReadData, above 0 and below 1, another one each time, and one blob at
	// least; 0 is all.
	Subset   float64
	Progress Progress
	Now      time.Time // of the report; the machine's time when zero
}

// CheckReport is what a check looked at and found.
type CheckReport struct {
	Format     int       `json:"format"` // of the data folder
	At         time.Time `json:"at"`
	Namespaces int64     `json:"namespaces"`
	Documents  int64     `json:"documents"` // deleted ones too
	Revisions  int64     `json:"revisions"`
	Artifacts  int64     `json:"artifacts"`
	Uploads    int64     `json:"uploads"` // that are known, final ones too
	Blobs      int64     `json:"blobs"`   // files
	AuditRows  int64     `json:"auditRows"`
	DataBytes  int64     `json:"dataBytes"` // read and hashed
	Findings   []Finding `json:"findings"`
	Omitted    int64     `json:"omitted"` // findings beyond maxFindings
}

// Damaged tells whether something is lost or wrong for callers.
func (r *CheckReport) Damaged() bool { return len(damages(r.Findings)) > 0 }

// damages are the findings that are damage.
func damages(all []Finding) (found []Finding) {
	for _, f := range all {
		if f.Damage {
			found = append(found, f)
		}
	}
	return found
}

// maxFindings bounds a report. What is damaged in more places than that is restored, not read through.
const maxFindings = 10_000

// RepairOptions are those of Repair.
type RepairOptions struct {
	DryRun   bool // nothing is changed; the report tells what would be done
	ReadData bool // the checks before and after read the bytes of artifacts, which are never repaired
	Progress Progress
	Now      time.Time // names the copy of the database; the machine's time when zero
}

// RepairReport is what a repair did.
type RepairReport struct {
	Done []Finding `json:"done"` // repaired, or with DryRun to be repaired
	Left []Finding `json:"left"` // what it cannot repair, with what to do instead
	// BytesRead tells that the last check read the bytes of artifacts; otherwise Left says nothing of them.
	BytesRead bool `json:"bytesRead"`
	// Copy is the copy of the database file as it was before; "" when nothing was to be done to it.
	Copy string `json:"copy,omitempty"`
}

// BackupOptions are those of Backup.
type BackupOptions struct {
	// Force moves what is at the target aside, to <target>.before-<time>. Nothing is deleted.
	Force    bool
	Version  string // of the program, for backup.json
	Progress Progress
	Now      time.Time // the machine's time when zero
}

// BackupReport is what was backed up.
type BackupReport struct {
	Manifest
	Dir   string `json:"dir"`             // of the backup, absolute
	Aside string `json:"aside,omitempty"` // where Force moved what was there
	// Secrets says what the backup holds that must be kept from others.
	Secrets string `json:"secrets"`
}

// RestoreOptions are those of Restore.
type RestoreOptions struct {
	// Force moves what is in the data folder aside, to <folder>.before-<time>. Nothing is deleted.
	Force    bool
	Progress Progress
	Now      time.Time // names what is moved aside; the machine's time when zero
}

// RestoreReport is what was restored. backup.json holds checksums and no signature: what was verified is that the backup
// is as it was written last, not who has written it. So a backup is as trusted as everybody who could write to it; Trust
// says that to people.
type RestoreReport struct {
	Manifest              // of the backup
	Dir      string       `json:"dir"`             // the data folder, absolute
	Aside    string       `json:"aside,omitempty"` // where Force moved what was there
	Check    *CheckReport `json:"check"`           // of the restored folder
	Trust    string       `json:"trust"`           // what the verification does not show
}

// Manifest is backup.json: what makes a folder a whole backup.
type Manifest struct {
	Backup    int       `json:"backup"`  // format of the backup itself
	Format    int       `json:"format"`  // of the database in it
	Program   string    `json:"program"` // version that made it
	At        time.Time `json:"at"`      // the point in time that it holds, by the clock of the machine
	Documents int64     `json:"documents"`
	Revisions int64     `json:"revisions"`
	Artifacts int64     `json:"artifacts"`
	Blobs     int64     `json:"blobs"`
	BlobBytes int64     `json:"blobBytes"`
	AuditRows int64     `json:"auditRows"`
	Database  string    `json:"database"`           // SHA-256 of the database file, hexadecimal
	Bytes     int64     `json:"bytes"`              // length of the database file
	AuditKey  string    `json:"auditKey,omitempty"` // SHA-256 of the file of the audit signing key; "" when there was none
}

package verify

import (
	"context"
	"fmt"
	"net/http"

	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
)

// Artifact is what a server knows of an artifact.
type Artifact struct {
	MIME   string
	Size   int64
	SHA256 string // in hexadecimal digits
	Key    string // of the upload, from the provenance
}

// Bytes is what a download gave.
type Bytes struct {
	Status int
	Whole  bool // the answer came to its end
	Size   int64
	SHA256 string // in hexadecimal digits
}

// Artifacts counts what was looked at.
type Artifacts struct {
	Uploads   int   // that were opened
	Committed int   // acknowledged commits
	Purged    int   // acknowledged purges of artifacts
	There     int   // artifacts that exist
	Bytes     int64 // downloaded and compared
	Finished  int   // uploads that were committed to see that they can be
}

// String is the counts in words.
func (a Artifacts) String() string {
	return fmt.Sprintf("%d uploads with %d acknowledged commits and %d purges, %d artifacts with %d bytes", a.Uploads, a.Committed, a.Purged, a.There, a.Bytes)
}

// most is the more definite of two outcomes: done, perhaps done, not done.
func most(a, b history.Outcome) history.Outcome {
	switch {
	case a == history.OK || b == history.OK:
		return history.OK
	case a == history.Unknown || b == history.Unknown:
		return history.Unknown
	}
	return history.NotDone
}

// thing is one upload with all that clients were told of it, and what the server has.
type thing struct {
	declared history.Op
	done     map[history.Kind]history.Outcome // NotDone also where nobody tried
	times    map[history.Kind][2]int          // acknowledged, and perhaps done
	there    bool
}

// did is the outcome of a kind.
func (t *thing) did(k history.Kind) history.Outcome {
	if o, ok := t.done[k]; ok {
		return o
	}
	return history.NotDone
}

// thingsOf sorts the merged operations by upload.
func thingsOf(merged []history.Op) map[string]*thing {
	out := map[string]*thing{}
	for _, op := range merged {
		if !op.Kind.OfArtifact() {
			continue
		}
		t := out[op.Upload]
		if t == nil {
			t = &thing{done: map[history.Kind]history.Outcome{}, times: map[history.Kind][2]int{}}
			out[op.Upload] = t
		}
		if t.declared.Artifact == "" {
			t.declared = op
		}
		t.done[op.Kind] = most(t.did(op.Kind), op.Outcome)
		n := t.times[op.Kind]
		switch op.Outcome {
		case history.OK:
			n[0]++
		case history.Unknown:
			n[1]++
		}
		t.times[op.Kind] = n
	}
	return out
}

// checkArtifacts looks at every upload and artifact that clients know of, and counts the others.
func (r *run) checkArtifacts(ctx context.Context, ops, merged []history.Op) (map[string]*thing, error) {
	things := thingsOf(merged)
	r.checkSeen(ops)
	for _, key := range sortedKeys(things) {
		t := things[key]
		r.Artifacts.Uploads++
		if n := t.times[history.Commit][0]; n > 0 {
			r.Artifacts.Committed++
			if n > 1 {
				r.Twice = append(r.Twice, fmt.Sprintf("upload %s: %d commits with keys of their own were acknowledged", key, n))
			}
		}
		if t.did(history.PurgeArtifact) == history.OK {
			r.Artifacts.Purged++
		}
		if t.declared.Artifact == "" {
			continue // nobody was told its name; if it became an artifact, the count shows it
		}
		if err := r.checkArtifact(ctx, key, t); err != nil {
			return nil, err
		}
	}
	n, known, err := r.server.Artifacts(ctx)
	if known && n != r.Artifacts.There {
		r.Phantoms = append(r.Phantoms, fmt.Sprintf("there are %d artifacts, and clients know of %d", n, r.Artifacts.There))
	}
	return things, err
}

// checkSeen looks for what a client was given that is wrong in itself.
func (r *run) checkSeen(ops []history.Op) {
	for _, op := range ops {
		switch {
		case op.Kind == history.Fetch && op.Code == history.Wrong:
			r.Damaged = append(r.Damaged, fmt.Sprintf("artifact %s was served with other bytes", op.Artifact))
		case op.Kind.OfArtifact() && op.Outcome == history.Refused && op.Code == "integrity_error":
			r.Damaged = append(r.Damaged, fmt.Sprintf("upload %s: its bytes were taken, and then found damaged or missing", op.Upload))
		}
	}
}

// checkArtifact compares an upload's artifact with what clients were told.
func (r *run) checkArtifact(ctx context.Context, key string, t *thing) error {
	name := t.declared.Artifact
	a, err := r.server.Artifact(ctx, name)
	if err != nil {
		return err
	}
	b, err := r.server.Bytes(ctx, name)
	if err != nil {
		return err
	}
	t.there = a != nil
	commit, purge := t.did(history.Commit), t.did(history.PurgeArtifact)
	switch {
	case t.there && purge == history.OK:
		r.Lost = append(r.Lost, fmt.Sprintf("artifact %s was purged and is there", name))
	case t.there && t.did(history.Abort) == history.OK:
		r.Phantoms = append(r.Phantoms, fmt.Sprintf("artifact %s is there, and its upload %s was aborted", name, key))
	case t.there && commit == history.NotDone:
		r.Phantoms = append(r.Phantoms, fmt.Sprintf("artifact %s is there, and nobody committed its upload %s", name, key))
	case !t.there && commit == history.OK && purge == history.NotDone:
		r.Lost = append(r.Lost, fmt.Sprintf("the commit of artifact %s was acknowledged, and it is not there", name))
	}
	r.checkBytes(name, t, a, b)
	return r.checkUpload(ctx, key, t)
}

// checkBytes compares metadata and bytes with what was declared.
func (r *run) checkBytes(name string, t *thing, a *Artifact, b Bytes) {
	d := t.declared
	switch {
	case a == nil && b.Status == http.StatusNotFound:
		return
	case a == nil:
		r.Damaged = append(r.Damaged, fmt.Sprintf("nothing is known of artifact %s, and its bytes are answered with %d", name, b.Status))
		return
	}
	r.Artifacts.There++
	if want := (Artifact{d.MIME, d.Size, d.Content, d.Upload}); *a != want {
		r.Damaged = append(r.Damaged, fmt.Sprintf("artifact %s is %+v, declared was %+v", name, *a, want))
	}
	if want := (Bytes{http.StatusOK, true, d.Size, d.Content}); b != want {
		r.Damaged = append(r.Damaged, fmt.Sprintf("artifact %s: its bytes are answered with %+v, wanted is %+v", name, b, want))
	}
	r.Artifacts.Bytes += b.Size
}

// checkUpload compares whether the upload is open with what clients were told.
func (r *run) checkUpload(ctx context.Context, key string, t *thing) error {
	if t.declared.UploadID == "" {
		return nil
	}
	open, err := r.server.Open(ctx, t.declared.UploadID)
	if err != nil {
		return err
	}
	closed := most(most(t.did(history.Commit), t.did(history.Abort)), t.did(history.PurgeArtifact))
	switch {
	case open && closed == history.OK:
		r.Lost = append(r.Lost, fmt.Sprintf("upload %s was committed or aborted, and is open", key))
	case open && t.there:
		r.Damaged = append(r.Damaged, fmt.Sprintf("upload %s is open, and its artifact exists", key))
	case !open && closed == history.NotDone && t.did(history.Begin) == history.OK:
		r.Lost = append(r.Lost, fmt.Sprintf("upload %s was opened, and nobody closed it, and it is not open", key))
	}
	return nil
}

// checkCitations looks for the target of every reference to an artifact.
func (r *run) checkCitations(all stored, things map[string]*thing) {
	there := map[string]bool{}
	for _, t := range things {
		there[t.declared.Artifact] = t.there
	}
	for _, name := range sortedKeys(all) {
		for _, number := range sortedKeys(all[name]) {
			for _, target := range all[name][number].Artifacts {
				if !there[target] {
					r.Dangling = append(r.Dangling, fmt.Sprintf("%s revision %d refers to artifact %s, which is not there", name, number, target))
				}
			}
		}
	}
}

// words name the audit rows of artifacts.
var words = map[history.Kind]string{
	history.Receive: "receiving", history.Commit: "commit", history.Abort: "abort", history.PurgeArtifact: "purge",
}

// checkArtifactAudit holds that every effect on an upload or artifact has one audit row, and every row its effect.
func (r *run) checkArtifactAudit(effects []Effect, merged []history.Op, things map[string]*thing) {
	type row struct {
		kind     history.Kind
		artifact string
	}
	rows := map[row]int{}
	for _, e := range effects {
		if e.Kind.OfArtifact() {
			rows[row{e.Kind, e.Artifact}]++
		}
	}
	r.checkBegins(rows[row{history.Begin, ""}], merged)
	delete(rows, row{history.Begin, ""})
	for _, key := range sortedKeys(things) {
		t := things[key]
		for _, kind := range []history.Kind{history.Receive, history.Commit, history.Abort, history.PurgeArtifact} {
			at := row{kind, t.declared.Artifact}
			n := rows[at]
			delete(rows, at)
			switch did := t.happened(kind); {
			case n == 0 && did == history.OK:
				r.Unlogged = append(r.Unlogged, fmt.Sprintf("artifact %s: the %s has no audit row", at.artifact, words[kind]))
			case n > 1, n > 0 && did == history.NotDone:
				r.Invented = append(r.Invented, fmt.Sprintf("artifact %s: %d audit rows tell of a %s", at.artifact, n, words[kind]))
			}
		}
	}
	for at, n := range rows {
		r.Invented = append(r.Invented, fmt.Sprintf("%d audit rows tell of a %s of artifact %s, which nobody knows", n, words[at.kind], at.artifact))
	}
}

// checkBegins compares the number of audit rows of opened uploads, which name none of them, with what clients know.
func (r *run) checkBegins(rows int, merged []history.Op) {
	sure, perhaps := 0, 0
	for _, op := range merged {
		switch {
		case op.Kind != history.Begin:
		case op.Outcome == history.OK:
			sure++
		case op.Outcome == history.Unknown:
			perhaps++
		}
	}
	switch {
	case rows < sure:
		r.Unlogged = append(r.Unlogged, fmt.Sprintf("%d uploads were opened, and there are %d audit rows of that", sure, rows))
	case rows > sure+perhaps:
		r.Invented = append(r.Invented, fmt.Sprintf("%d audit rows tell of uploads that were opened; clients opened %d, and perhaps %d more", rows, sure, perhaps))
	}
}

// happened is whether an effect happened, from what clients were told and from what is there: an artifact that exists,
// or did, was committed, and its bytes were received.
func (t *thing) happened(kind history.Kind) history.Outcome {
	did := t.did(kind)
	published := t.there || t.did(history.Commit) == history.OK || t.did(history.PurgeArtifact) == history.OK
	switch kind {
	case history.Commit, history.Receive:
		if published {
			return history.OK
		}
		if kind == history.Commit && t.did(history.PurgeArtifact) == history.NotDone {
			return history.NotDone // it would be there
		}
	case history.PurgeArtifact, history.Abort:
		if t.there {
			return history.NotDone
		}
	}
	return did
}

// finish commits the uploads whose bytes were acknowledged and that nobody has closed.
func (r *run) finish(ctx context.Context, things map[string]*thing) error {
	for _, key := range sortedKeys(things) {
		t := things[key]
		closed := most(t.did(history.Commit), t.did(history.Abort))
		if t.did(history.Receive) != history.OK || closed != history.NotDone || t.declared.UploadID == "" {
			continue
		}
		code, err := r.server.Commit(ctx, t.declared)
		if err != nil {
			return err
		}
		if code != "" {
			r.Lost = append(r.Lost, fmt.Sprintf("the bytes of upload %s were acknowledged, and its commit is answered with %s", key, code))
		}
		r.Artifacts.Finished++
	}
	return nil
}

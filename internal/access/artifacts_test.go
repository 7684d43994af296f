package access_test

import (
	"fmt"
	"strings"
	"testing"
)

// The bytes of every artifact of the matrix, and their SHA-256 as `printf abc | sha256sum` gives it. They are the same
// everywhere, so that a purge meets bytes that others need.
const (
	content    = "abc"
	contentSum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
)

// noHandle is an id of the form that the service makes, and of nothing.
const noHandle = "00000000-0000-4000-8000-%012d"

// item is an upload, or the artifact that it led to.
type item struct {
	namespace, upload, artifact string
	scope                       string // the path of the artifact that a key made for the cell covers
	args                        []byte
}

// prepareArtifact puts an upload or an artifact into the state of the target. A replay gets one of its own, since the
// keeper's call has an effect.
func (b *table) prepareArtifact(t *testing.T, c *cell) {
	t.Helper()
	if strings.HasSuffix(c.operation, "-replay") {
		c.item = b.produce(t, c.target)
		tool, args := b.artifactTool(c)
		b.must(t, tool, args)
		c.item.args = args
		return
	}
	kept, ok := b.stock[c.target]
	if !ok {
		kept = b.produce(t, c.target)
		b.stock[c.target] = kept
	}
	c.item = kept
}

// spend forgets a target whose state the cell has changed.
func (b *table) spend(c *cell, verdict string) {
	switch c.operation {
	case "getArtifact", "read-artifact", "uploadAccess", "beginArtifact", "GET":
		return
	}
	if verdict == "ok" || verdict == "204" {
		delete(b.stock, c.target)
	}
}

// produce makes an upload or an artifact in the state of a target. foreign- puts it into the other namespace; beside-
// gives a key made for the cell the right on another artifact.
func (b *table) produce(t *testing.T, target string) item {
	t.Helper()
	i := item{namespace: "own"}
	state, foreign := strings.CutPrefix(target, "foreign-")
	if foreign {
		i.namespace = "other"
	}
	state, beside := strings.CutPrefix(state, "beside-")
	b.n++
	none := fmt.Sprintf(noHandle, b.n)
	switch state {
	case "creation":
		i.artifact = none
	case "missing-artifact", "unknown":
		i.upload, i.artifact = none, none
	case "new-name":
		i.artifact = "_new"
	default:
		b.produceUpload(t, &i, state)
	}
	if i.scope = artifactAt(i.namespace, i.artifact); beside {
		i.scope = artifactAt(i.namespace, none)
	}
	return i
}

// artifactAt is what the policy calls an artifact (persistence.v1, section 8).
func artifactAt(namespace, id string) string {
	return "/persistence/namespaces/" + namespace + "/artifacts/" + id
}

// produceUpload opens an upload and takes it to a state.
func (b *table) produceUpload(t *testing.T, i *item, state string) {
	t.Helper()
	u := b.must(t, "persistence.beginArtifact", b.beginArgs(i.namespace))
	i.upload, i.artifact = fmt.Sprint(u["uploadId"]), fmt.Sprint(u["artifactId"])
	steps := map[string]string{
		"pending": "", "received": "s", "uncommitted": "s", "aborted": "a", "artifact": "sc", "committed": "sc", "cited": "scr",
		"purged-artifact": "scp", "purged-upload": "scp",
	}
	todo, ok := steps[state]
	if !ok {
		t.Fatalf("unknown target %s", state)
	}
	for _, step := range todo {
		switch step {
		case 's':
			a, err := b.Route(t.Context(), keeper, "PUT", "/uploads/"+i.namespace+"/"+i.upload, []byte(content))
			if err != nil || a.status != 204 {
				t.Fatalf("PUT as keeper: %v %+v", err, a)
			}
		case 'a':
			b.must(t, "persistence.abortArtifact", b.uploadArgs(i))
		case 'c':
			b.must(t, "persistence.commitArtifact", b.uploadArgs(i))
		case 'r':
			b.must(t, "persistence.put", b.putArgs("own", "cites-"+i.artifact, 0, refTo(i), b.key()))
		case 'p':
			b.must(t, "persistence.purge", b.purgeArtifactArgs(i))
		}
	}
}

// beginArgs are the arguments of beginArtifact.
func (b *table) beginArgs(namespace string) []byte {
	return fmt.Appendf(nil, `{"namespace":%q,"mimeType":"text/plain","size":%d,"hash":{"algorithm":"sha256","value":%q},"provenance":null,"idempotencyKey":%q}`,
		namespace, len(content), contentSum, b.key())
}

// uploadArgs are the arguments of commitArtifact and abortArtifact.
func (b *table) uploadArgs(i *item) []byte {
	return fmt.Appendf(nil, `{"namespace":%q,"uploadId":%q,"idempotencyKey":%q}`, i.namespace, i.upload, b.key())
}

// purgeArtifactArgs are the arguments of the purge of an artifact.
func (b *table) purgeArtifactArgs(i *item) []byte {
	return fmt.Appendf(nil, `{"namespace":%q,"target":{"type":"artifact","id":%q},"idempotencyKey":%q}`, i.namespace, i.artifact, b.key())
}

// refTo is a list of references with the artifact alone.
func refTo(i *item) string {
	return fmt.Sprintf(`[{"type":"artifact","namespace":%q,"id":%q}]`, i.namespace, i.artifact)
}

// artifactTool is the tool and the arguments of an operation on uploads and artifacts; "" for other ones. A replay
// repeats the arguments of the keeper.
func (b *table) artifactTool(c *cell) (tool string, args []byte) {
	i := &c.item
	switch c.operation {
	case "beginArtifact", "begin-replay":
		tool, args = "persistence.beginArtifact", b.beginArgs(i.namespace)
	case "uploadAccess":
		tool, args = "persistence.uploadAccess", fmt.Appendf(nil, `{"namespace":%q,"uploadId":%q}`, i.namespace, i.upload)
	case "commitArtifact", "commit-replay":
		tool, args = "persistence.commitArtifact", b.uploadArgs(i)
	case "abortArtifact", "abort-replay":
		tool, args = "persistence.abortArtifact", b.uploadArgs(i)
	case "getArtifact":
		tool, args = "persistence.getArtifact", fmt.Appendf(nil, `{"namespace":%q,"id":%q}`, i.namespace, i.artifact)
	case "purge-artifact", "purge-replay":
		tool, args = "persistence.purge", b.purgeArtifactArgs(i)
	case "put-ref-artifact":
		tool, args = "persistence.put", b.putArgs("own", fmt.Sprintf("citing%d", b.n), 0, refTo(i), b.key())
	}
	if i.args != nil {
		args = i.args
	}
	return tool, args
}

// askRoute asks a route. A body that is not the one that goes with the status is a verdict of its own.
func (b *table) askRoute(t *testing.T, c *cell) (verdict, words string) {
	t.Helper()
	path, body := "/artifacts/"+c.item.namespace+"/"+c.item.artifact, []byte(nil)
	if c.operation == "PUT" {
		path, body = "/uploads/"+c.item.namespace+"/"+c.item.upload, []byte(content)
	}
	a, err := b.Route(t.Context(), c.as, c.operation, path, body)
	if err != nil {
		t.Fatalf("%s as %s on %s: %v", c.operation, c.as, c.target, err)
	}
	verdict = fmt.Sprint(a.status)
	if wrong := b.m.wrongBody(a); wrong != "" {
		verdict += ", " + wrong
	}
	return verdict, a.head + a.body
}

package verify_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/testkit/history"
	"github.com/tabellion-mcp/tabellion/internal/testkit/verify"
)

// fake is a server that holds what a test plants.
type fake struct {
	docs    map[string][]verify.Revision
	effects []verify.Effect
	things  map[string]*verify.Artifact
	bytes   map[string]verify.Bytes // 404 for what is not named
	open    map[string]bool
	commit  string // the answer to commits
	extra   int    // artifacts beside those in things
}

func (f *fake) Artifacts(context.Context) (int, bool, error) {
	return len(f.things) + f.extra, true, nil
}

func (f *fake) Artifact(_ context.Context, name string) (*verify.Artifact, error) {
	return f.things[name], nil
}

func (f *fake) Bytes(_ context.Context, name string) (verify.Bytes, error) {
	if b, ok := f.bytes[name]; ok {
		return b, nil
	}
	return verify.Bytes{Status: 404, Whole: true}, nil
}

func (f *fake) Open(_ context.Context, upload string) (bool, error) { return f.open[upload], nil }

func (f *fake) Commit(context.Context, history.Op) (string, error) { return f.commit, nil }

func (f *fake) Documents(context.Context) ([]string, error) {
	var names []string
	for name := range f.docs {
		names = append(names, name)
	}
	return names, nil
}

func (f *fake) Revisions(_ context.Context, name string) ([]verify.Revision, error) {
	return f.docs[name], nil
}

func (f *fake) Effects(context.Context) ([]verify.Effect, error) { return f.effects, nil }

// sound is a history and the server that fits it.
func sound() ([]history.Op, *fake) {
	ops := []history.Op{
		{Document: "ns/a", Kind: history.Put, Key: "k1", Content: "k1", Outcome: history.OK, Revision: 1},
		{Document: "ns/a", Kind: history.Put, Key: "k2", Content: "k2", Expected: 1, Outcome: history.Unknown},
		{Document: "ns/a", Kind: history.Put, Key: "k2", Content: "k2", Expected: 1, Outcome: history.OK, Revision: 2},
		{Document: "ns/a", Kind: history.Put, Key: "k3", Content: "k3", Expected: 1, Outcome: history.Refused},
		{Document: "ns/a", Kind: history.Get, Content: "k2", Outcome: history.OK, Revision: 2},
		{Document: "ns/a", Kind: history.Delete, Key: "k4", Expected: 2, Outcome: history.OK, Revision: 3},
		{Document: "ns/b", Kind: history.Put, Key: "k5", Content: "k5", Outcome: history.Unknown},
	}
	return ops, &fake{
		docs: map[string][]verify.Revision{
			"ns/a": {{Number: 1, Content: "k1"}, {Number: 2, Content: "k2", Refs: []string{"ns/a@1"}}, {Number: 3, Deleted: true}},
			"ns/b": {{Number: 1, Content: "k5"}},
		},
		effects: []verify.Effect{put("ns/a", 1), put("ns/a", 2), put("ns/a", 3), put("ns/b", 1)},
	}
}

// put is the audit row of a revision.
func put(document string, revision int64) verify.Effect {
	return verify.Effect{Kind: history.Put, Document: document, Revision: revision}
}

// on is an operation on upload u, whose artifact is ns/u.
func on(u string, kind history.Kind, outcome history.Outcome) history.Op {
	op := history.Op{Upload: u, UploadID: "up-" + u, Artifact: "ns/" + u, Kind: kind, Outcome: outcome, Content: "sha-" + u, MIME: "a/b", Size: 3}
	if kind != history.Receive && kind != history.Fetch {
		op.Key = fmt.Sprintf("%s-%d", u, kind)
	}
	return op
}

// row is the audit row of an operation on upload u.
func row(u string, kind history.Kind) verify.Effect {
	return verify.Effect{Kind: kind, Artifact: "ns/" + u}
}

// publish makes the server hold the artifact of u.
func (f *fake) publish(u string) {
	f.things["ns/"+u] = &verify.Artifact{MIME: "a/b", Size: 3, SHA256: "sha-" + u, Key: u}
	f.bytes["ns/"+u] = verify.Bytes{Status: 200, Whole: true, Size: 3, SHA256: "sha-" + u}
}

// soundArtifacts adds to sound one upload of each fate: committed and cited, aborted, purged, received, pending, and one
// whose commit is not known.
func soundArtifacts() ([]history.Op, *fake) {
	ops, f := sound()
	f.things, f.bytes, f.open = map[string]*verify.Artifact{}, map[string]verify.Bytes{}, map[string]bool{"up-received": true, "up-pending": true, "up-maybe": true}
	f.publish("committed")
	f.docs["ns/b"][0].Artifacts = []string{"ns/committed"}
	for u, kinds := range map[string][]history.Kind{
		"committed": {history.Receive, history.Commit}, "aborted": {history.Receive, history.Abort},
		"purged": {history.Receive, history.Commit, history.PurgeArtifact}, "received": {history.Receive}, "pending": nil, "maybe": {history.Receive},
	} {
		ops = append(ops, on(u, history.Begin, history.OK))
		f.effects = append(f.effects, verify.Effect{Kind: history.Begin})
		for _, kind := range kinds {
			ops = append(ops, on(u, kind, history.OK))
			f.effects = append(f.effects, row(u, kind))
		}
	}
	return append(ops, on("maybe", history.Commit, history.Unknown), on("committed", history.Fetch, history.OK)), f
}

// without leaves out an audit row.
func without(all []verify.Effect, gone verify.Effect) []verify.Effect {
	i := slices.Index(all, gone)
	return slices.Delete(slices.Clone(all), i, i+1)
}

// TestPlantedArtifacts holds the same of artifacts.
func TestPlantedArtifacts(t *testing.T) {
	tests := []struct {
		name, want string
		plant      func(ops *[]history.Op, f *fake)
	}{
		{"sound", "", func(*[]history.Op, *fake) {}},
		{"unknown commit that happened", "", func(_ *[]history.Op, f *fake) {
			f.publish("maybe")
			f.open["up-maybe"] = false
			f.effects = append(f.effects, row("maybe", history.Commit))
		}},
		{"a purged revision leaves a hole", "", func(ops *[]history.Op, f *fake) {
			*ops = append(*ops, history.Op{Document: "ns/a", Kind: history.Purge, Key: "p", Revision: 1})
			f.docs["ns/a"] = f.docs["ns/a"][1:]
			f.docs["ns/a"][0].Refs = nil
			f.effects = append(f.effects, verify.Effect{Kind: history.Purge, Document: "ns/a"})
		}},
		{"a hole without a purge", "gaps 1", func(_ *[]history.Op, f *fake) {
			f.docs["ns/a"] = f.docs["ns/a"][1:]
			f.docs["ns/a"][0].Refs = nil
		}},
		{"a purge that had no effect", "lost 1", func(ops *[]history.Op, f *fake) {
			*ops = append(*ops, history.Op{Document: "ns/a", Kind: history.Purge, Key: "p", Revision: 1})
		}},
		{"a purge without audit row", "unlogged 1", func(ops *[]history.Op, f *fake) {
			*ops = append(*ops, history.Op{Document: "ns/a", Kind: history.Purge, Key: "p", Revision: 1})
			f.docs["ns/a"] = f.docs["ns/a"][1:]
			f.docs["ns/a"][0].Refs = nil
		}},
		{"lost artifact", "lost 1", func(_ *[]history.Op, f *fake) {
			delete(f.things, "ns/committed")
			delete(f.bytes, "ns/committed")
			f.docs["ns/b"][0].Artifacts = nil
		}},
		{"dangling citation", "dangling 1", func(_ *[]history.Op, f *fake) { f.docs["ns/b"][0].Artifacts = []string{"ns/purged"} }},
		{"other bytes", "damaged 1", func(_ *[]history.Op, f *fake) {
			f.bytes["ns/committed"] = verify.Bytes{Status: 200, Whole: true, Size: 3, SHA256: "x"}
		}},
		{"bytes that break off", "damaged 1", func(_ *[]history.Op, f *fake) {
			f.bytes["ns/committed"] = verify.Bytes{Status: 200, Size: 3, SHA256: "sha-committed"}
		}},
		{"metadata without bytes", "damaged 1", func(_ *[]history.Op, f *fake) { f.bytes["ns/committed"] = verify.Bytes{Status: 400, Whole: true} }},
		{"bytes without metadata", "damaged 1", func(_ *[]history.Op, f *fake) {
			f.bytes["ns/aborted"] = verify.Bytes{Status: 200, Whole: true, Size: 3, SHA256: "sha-aborted"}
		}},
		{"other metadata", "damaged 1", func(_ *[]history.Op, f *fake) { f.things["ns/committed"].MIME = "c/d" }},
		{"an artifact that nobody committed", "phantoms 1", func(_ *[]history.Op, f *fake) {
			f.publish("received")
			f.open["up-received"] = false
			f.effects = append(f.effects, row("received", history.Commit))
			f.commit = ""
		}},
		{"an artifact of nobody", "phantoms 1", func(_ *[]history.Op, f *fake) { f.extra = 1 }},
		{"an aborted upload is there", "phantoms 1", func(_ *[]history.Op, f *fake) { f.publish("aborted") }},
		{"a purged artifact is there", "lost 1", func(_ *[]history.Op, f *fake) { f.publish("purged") }},
		{"an aborted upload is open", "lost 1", func(_ *[]history.Op, f *fake) { f.open["up-aborted"] = true }},
		{"an open upload is gone", "lost 1", func(_ *[]history.Op, f *fake) { f.open["up-pending"] = false }},
		{"received bytes cannot be committed", "lost 1", func(_ *[]history.Op, f *fake) { f.commit = "transfer_incomplete" }},
		{"taken bytes were found damaged", "damaged 1", func(ops *[]history.Op, _ *fake) {
			op := on("received", history.Commit, history.Refused)
			op.Code = "integrity_error"
			*ops = append(*ops, op)
		}},
		{"wrong bytes were served", "damaged 1", func(ops *[]history.Op, _ *fake) {
			op := on("committed", history.Fetch, history.OK)
			op.Code = history.Wrong
			*ops = append(*ops, op)
		}},
		{"two commits of one upload", "applied twice 1", func(ops *[]history.Op, _ *fake) {
			op := on("committed", history.Commit, history.OK)
			op.Key = "another"
			*ops = append(*ops, op)
		}},
		{"commit without audit row", "unlogged 1", func(_ *[]history.Op, f *fake) { f.effects = without(f.effects, row("committed", history.Commit)) }},
		{"receiving without audit row", "unlogged 1", func(_ *[]history.Op, f *fake) { f.effects = without(f.effects, row("received", history.Receive)) }},
		{"abort without audit row", "unlogged 1", func(_ *[]history.Op, f *fake) { f.effects = without(f.effects, row("aborted", history.Abort)) }},
		{"purge of an artifact without audit row", "unlogged 1", func(_ *[]history.Op, f *fake) {
			f.effects = without(f.effects, row("purged", history.PurgeArtifact))
		}},
		{"begin without audit row", "unlogged 1", func(_ *[]history.Op, f *fake) {
			f.effects = without(f.effects, verify.Effect{Kind: history.Begin})
		}},
		{"one begin too many", "invented 1", func(_ *[]history.Op, f *fake) {
			f.effects = append(f.effects, verify.Effect{Kind: history.Begin})
		}},
		{"two rows of a commit", "invented 1", func(_ *[]history.Op, f *fake) { f.effects = append(f.effects, row("committed", history.Commit)) }},
		{"row of an abort that nobody asked for", "invented 1", func(_ *[]history.Op, f *fake) { f.effects = append(f.effects, row("pending", history.Abort)) }},
		{"row of an artifact of nobody", "invented 1", func(_ *[]history.Op, f *fake) { f.effects = append(f.effects, row("nobody", history.Commit)) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ops, server := soundArtifacts()
			tt.plant(&ops, server)
			expect(t, ops, server, tt.want)
		})
	}
}

// expect runs the verifier and looks for a count in its report; "" wants a clean one.
func expect(t *testing.T, ops []history.Op, server verify.Server, want string) {
	t.Helper()
	report, err := verify.Run(t.Context(), ops, server)
	if err != nil {
		t.Fatal(err)
	}
	if want == "" != report.Clean() {
		t.Fatalf("clean is %t: %s", report.Clean(), report)
	}
	if !strings.Contains(report.String(), want) {
		t.Fatalf("want %q in: %s", want, report)
	}
}

// TestPlanted holds that the verifier is silent on a sound server and names each planted violation by its kind.
func TestPlanted(t *testing.T) {
	tests := []struct {
		name, want string
		plant      func(ops *[]history.Op, f *fake)
	}{
		{"sound", "", func(*[]history.Op, *fake) {}},
		{"unknown write that never happened", "", func(_ *[]history.Op, f *fake) { delete(f.docs, "ns/b"); f.effects = f.effects[:3] }},
		{"lost revision", "lost 1", func(_ *[]history.Op, f *fake) {
			f.docs["ns/a"] = f.docs["ns/a"][:2]
			f.effects = append(f.effects[:2:2], f.effects[3])
		}},
		{"changed content", "lost 2", func(_ *[]history.Op, f *fake) { f.docs["ns/a"][1].Content = "other" }},
		{"tombstone became live", "lost 1", func(_ *[]history.Op, f *fake) { f.docs["ns/a"][2] = verify.Revision{Number: 3, Content: "k9"} }},
		{"applied twice", "applied twice 1", func(_ *[]history.Op, f *fake) {
			f.docs["ns/a"] = append(f.docs["ns/a"], verify.Revision{Number: 4, Content: "k2"})
			f.effects = append(f.effects, put("ns/a", 4))
		}},
		{"gap", "gaps 1", func(_ *[]history.Op, f *fake) { f.docs["ns/b"][0].Number = 2; f.effects[3].Revision = 2 }},
		{"refused write is there", "phantoms 1", func(_ *[]history.Op, f *fake) {
			f.docs["ns/a"] = append(f.docs["ns/a"], verify.Revision{Number: 4, Content: "k3"})
			f.effects = append(f.effects, put("ns/a", 4))
		}},
		{"content of nobody", "phantoms 1", func(_ *[]history.Op, f *fake) { f.docs["ns/b"][0].Content = "zz" }},
		{"dangling reference", "dangling 1", func(_ *[]history.Op, f *fake) { f.docs["ns/a"][1].Refs = []string{"ns/c@1"} }},
		{"no audit row", "unlogged 1", func(_ *[]history.Op, f *fake) { f.effects = f.effects[1:] }},
		{"audit row without effect", "invented 1", func(_ *[]history.Op, f *fake) {
			f.effects = append(f.effects, put("ns/z", 1))
		}},
		{"two audit rows", "invented 1", func(_ *[]history.Op, f *fake) { f.effects = append(f.effects, f.effects[0]) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ops, server := sound()
			tt.plant(&ops, server)
			expect(t, ops, server, tt.want)
		})
	}
}

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"slices"
	"sync/atomic"

	"github.com/tabellion-mcp/tabellion/client"
)

// names say where things are kept.
type names struct{ namespace, missions, suffix string }

// id is the id of a thing of this run.
func (n names) id(thing string) string { return thing + "-" + n.suffix }

// explorer is the application.
type explorer struct {
	*client.Client
	names
	out io.Writer
	net *flaky
}

// checkpoint is the application's own form of its state. The server keeps it and does not look at it.
type checkpoint struct {
	Body   string   `json:"body"`
	Date   string   `json:"astronomicalDate"`
	Layers []string `json:"layers"`
}

// tell connects and goes through the story.
func tell(ctx context.Context, out io.Writer, caller client.Caller, opts client.Options, n names) error {
	net := &flaky{Caller: caller}
	c, err := client.New(ctx, net, opts)
	if err != nil {
		return err
	}
	e := &explorer{c, n, out, net}
	caps := c.Capabilities()
	e.say("The server speaks %s and promises %s; a document may have %d bytes.", caps.Contract, caps.Durability, caps.Limits.MaxDocumentBytes)
	for _, chapter := range []func(context.Context) error{e.save, e.conflict, e.lostAnswer, e.mission, e.restore, e.evidence} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	e.say("Done.")
	return nil
}

// say prints one line.
func (e *explorer) say(format string, args ...any) { fmt.Fprintf(e.out, format+"\n", args...) }

// title prints the line above a chapter.
func (e *explorer) title(text string) { e.say("\n%s", text) }

// write puts a checkpoint on the revision that it builds on.
func (e *explorer) write(ctx context.Context, on int64, c checkpoint) (*client.Document, error) {
	payload, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return e.Put(ctx, client.PutRequest{
		Namespace: e.namespace, ID: e.id("checkpoint"), Kind: "checkpoint", SchemaVersion: "1",
		Payload: payload, ExpectedRevision: on,
	})
}

// save writes the first revision of a checkpoint.
func (e *explorer) save(ctx context.Context) error {
	e.title("1. Save a checkpoint")
	d, err := e.write(ctx, 0, checkpoint{Body: "Mars", Date: "2042-01-01T00:00:00Z", Layers: []string{"relief"}})
	if err != nil {
		return err
	}
	e.say("%s/%s is saved: revision %d.", d.Namespace, d.ID, d.Revision)
	return nil
}

// conflict meets a write of another window, and merges.
func (e *explorer) conflict(ctx context.Context) error {
	e.title("2. Meet a conflict and resolve it")
	if _, err := e.write(ctx, 1, checkpoint{Body: "Mars", Date: "2042-01-01T00:00:00Z", Layers: []string{"relief", "craters"}}); err != nil {
		return err
	}
	e.say("Another window adds the layer craters: revision 2.")
	mine := checkpoint{Body: "Mars", Date: "2042-01-02T00:00:00Z", Layers: []string{"relief", "dust"}}
	_, err := e.write(ctx, 1, mine)
	if !errors.Is(err, client.RevisionConflict) {
		return unexpected("a write on revision 1", client.RevisionConflict, err)
	}
	e.say("This window, which still knows revision 1, is refused: revision_conflict. It reads, and merges.")
	head, err := e.Get(ctx, e.namespace, e.id("checkpoint"))
	if err != nil {
		return err
	}
	var theirs checkpoint
	if err := json.Unmarshal(head.Payload, &theirs); err != nil {
		return err
	}
	merged, err := e.write(ctx, head.Revision, merge(mine, theirs))
	if err != nil {
		return err
	}
	e.say("Both windows' layers are in revision %d: %s", merged.Revision, merged.Payload)
	return nil
}

// unexpected is the error of what was to be refused and was not, or in another way.
func unexpected(what string, want client.Code, err error) error {
	if err == nil {
		return fmt.Errorf("%s was not refused as %s", what, want)
	}
	return fmt.Errorf("%s was to be refused as %s: %w", what, want, err)
}

// merge keeps my date, and the layers of both. What a conflict means is for each application to say.
func merge(mine, theirs checkpoint) checkpoint {
	for _, layer := range theirs.Layers {
		if !slices.Contains(mine.Layers, layer) {
			mine.Layers = append(mine.Layers, layer)
		}
	}
	slices.Sort(mine.Layers)
	return mine
}

// lostAnswer writes over a network that loses the answer.
func (e *explorer) lostAnswer(ctx context.Context) error {
	e.title("3. Lose an answer")
	e.net.lose.Store(true)
	d, err := e.write(ctx, 3, checkpoint{Body: "Phobos", Date: "2042-01-03T00:00:00Z", Layers: []string{"relief"}})
	if err != nil {
		return err
	}
	e.say("The server wrote revision %d, and its answer was lost. The client asked again with the same key and the same bytes.", d.Revision)
	n, err := e.count(ctx)
	if err != nil {
		return err
	}
	e.say("The document has %d revisions: there was one effect.", n)
	return nil
}

// count counts the revisions of the checkpoint.
func (e *explorer) count(ctx context.Context) (n int, err error) {
	for _, err := range e.ListRevisions(ctx, client.ListRevisionsRequest{Namespace: e.namespace, ID: e.id("checkpoint")}) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// mission writes a document that cites a view and a picture of it.
func (e *explorer) mission(ctx context.Context) error {
	e.title("4. Cite a view and a capture in a mission")
	view := client.PutRequest{
		Namespace: e.namespace, ID: e.id("view"), Kind: "view", SchemaVersion: "1", Payload: json.RawMessage(`{"camera":[0,0,10]}`),
	}
	seen, err := e.Put(ctx, view)
	if err != nil {
		return err
	}
	picture, err := capture()
	if err != nil {
		return err
	}
	shot, err := e.Upload(ctx, client.UploadRequest{
		Namespace: e.namespace, MimeType: "image/png", Provenance: json.RawMessage(`{"tool":"explorer","view":1}`),
		Body: bytes.NewReader(picture),
	})
	if err != nil {
		return err
	}
	e.say("The capture is artifact %s: %d bytes, SHA-256 %s.", shot.ID, shot.Size, shot.Hash.Value)
	m, err := e.Put(ctx, client.PutRequest{
		Namespace: e.missions, ID: e.id("mission"), Kind: "mission", SchemaVersion: "1", Payload: json.RawMessage(`"A landing site north of the crater."`),
		References: []client.Reference{
			client.RefDocument(seen.Namespace, seen.ID, seen.Revision), client.RefArtifact(shot.Namespace, shot.ID),
		},
	})
	if err != nil {
		return err
	}
	e.say("%s/%s cites revision %d of the view, and the capture.", m.Namespace, m.ID, seen.Revision)
	view.ExpectedRevision, view.Payload = seen.Revision, json.RawMessage(`{"camera":[5,5,5]}`)
	if seen, err = e.Put(ctx, view); err != nil {
		return err
	}
	e.say("The view moves on to revision %d; the mission goes on citing what it saw.", seen.Revision)
	return nil
}

// capture paints a small picture.
func capture() ([]byte, error) {
	img := image.NewRGBA(image.Rect(0, 0, 64, 64))
	for x := range 64 {
		for y := range 64 {
			img.Set(x, y, color.RGBA{uint8(160 + x), uint8(80 + y/2), 40, 255})
		}
	}
	var b bytes.Buffer
	err := png.Encode(&b, img)
	return b.Bytes(), err
}

// restore deletes the checkpoint and brings it back.
func (e *explorer) restore(ctx context.Context) error {
	e.title("5. Delete and restore")
	stone, err := e.Delete(ctx, client.DeleteRequest{Namespace: e.namespace, ID: e.id("checkpoint"), ExpectedRevision: 4})
	if err != nil {
		return err
	}
	if _, err := e.Get(ctx, e.namespace, e.id("checkpoint")); !errors.Is(err, client.NotFound) {
		return unexpected("reading a deleted document", client.NotFound, err)
	}
	e.say("The checkpoint is deleted: revision %d is a tombstone, and reading gives not_found.", stone.Revision)
	old, err := e.GetRevision(ctx, e.namespace, e.id("checkpoint"), 3)
	if err != nil {
		return err
	}
	back, err := e.Put(ctx, client.PutRequest{
		Namespace: old.Namespace, ID: old.ID, Kind: old.Kind, SchemaVersion: old.SchemaVersion,
		Payload: old.Payload, References: old.References, ExpectedRevision: stone.Revision,
	})
	if err != nil {
		return err
	}
	e.say("Revision 3 is still there, and is written again as revision %d: %s", back.Revision, back.Payload)
	return nil
}

// evidence follows the mission's references and verifies what it finds.
func (e *explorer) evidence(ctx context.Context) error {
	e.title("6. Read the evidence back")
	m, err := e.Get(ctx, e.missions, e.id("mission"))
	if err != nil {
		return err
	}
	for _, ref := range m.References {
		if ref.Type == "document" {
			d, err := e.GetRevision(ctx, ref.Namespace, ref.ID, ref.Revision)
			if err != nil {
				return err
			}
			e.say("The view as it was cited, revision %d: %s", d.Revision, d.Payload)
			continue
		}
		var picture bytes.Buffer
		a, err := e.Download(ctx, ref.Namespace, ref.ID, &picture, nil) // fails when the bytes are not the artifact's
		if err != nil {
			return err
		}
		sum := sha256.Sum256(picture.Bytes())
		e.say("The capture, %d bytes of %s, has the SHA-256 %s: verified.", picture.Len(), a.MimeType, hex.EncodeToString(sum[:]))
	}
	return nil
}

// flaky is a connection that loses an answer when it is told to: what was asked has happened, and nobody hears of it.
type flaky struct {
	client.Caller
	lose atomic.Bool
}

// CallTool implements client.Caller.
func (f *flaky) CallTool(ctx context.Context, name string, arguments json.RawMessage) (client.Result, error) {
	res, err := f.Caller.CallTool(ctx, name, arguments)
	if f.lose.CompareAndSwap(true, false) {
		return client.Result{}, errors.New("the connection was reset")
	}
	return res, err
}

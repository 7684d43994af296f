package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
)

// doing is what a fixture does.
type doing func(context.Context, *catalog.Call) (catalog.Result, error)

// anyInput takes every object.
const anyInput = `{"type":"object"}`

// tool makes a tool of the fixture slot.
func tool(name, doc, input string, do doing) *catalog.Operation {
	return &catalog.Operation{
		Name: name, Doc: doc, Slot: catalog.Context, In: catalog.MustSchema(input),
		Effects: catalog.Effects{ReadOnly: catalog.Yes}, Publish: catalog.Publish{Tool: true}, Run: do,
	}
}

// prompt makes a prompt whose arguments are all required.
func prompt(name, doc string, do doing, arguments ...string) *catalog.Operation {
	p := &catalog.Prompt{}
	for _, a := range arguments {
		p.Arguments = append(p.Arguments, catalog.PromptArgument{Name: a, Doc: "Argument " + a, Required: true})
	}
	return &catalog.Operation{
		Name: name, Doc: doc, Slot: catalog.Context, In: catalog.MustSchema(anyInput),
		Effects: catalog.Effects{ReadOnly: catalog.Yes}, Publish: catalog.Publish{Prompt: p}, Run: do,
	}
}

// resource makes a resource with a fixed URI.
func resource(name, uri, mime string, do doing) *catalog.Operation {
	return &catalog.Operation{
		Name: name, Doc: "Resource " + name, Slot: catalog.Context, In: catalog.MustSchema(anyInput),
		Effects: catalog.Effects{ReadOnly: catalog.Yes}, Run: do,
		Publish: catalog.Publish{Resources: []catalog.Resource{{URI: uri, Name: name, Doc: "Resource " + name, MIME: mime}}},
	}
}

// blocks answers with content blocks.
func blocks(b ...catalog.Block) doing {
	return func(context.Context, *catalog.Call) (catalog.Result, error) { return catalog.Result{Blocks: b}, nil }
}

// text is a text block.
func text(format string, args ...any) catalog.Block {
	return catalog.Block{Type: "text", Text: fmt.Sprintf(format, args...)}
}

// said is a result of one text.
func said(format string, args ...any) (catalog.Result, error) {
	return catalog.Result{Blocks: []catalog.Block{text(format, args...)}}, nil
}

// Media of the smallest kind: a PNG of one pixel and a WAV without samples.
var (
	picture = mustDecode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==")
	sound   = mustDecode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
)

// mustDecode decodes base64 text in this file.
func mustDecode(s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// operations are all fixtures.
func operations() []*catalog.Operation {
	var ops []*catalog.Operation
	ops = append(ops, contentTools()...)
	ops = append(ops, behaviourTools()...)
	ops = append(ops, olderTools()...)
	ops = append(ops, inputTools()...)
	ops = append(ops, resources()...)
	return append(ops, prompts()...)
}

// contentTools answer with each kind of content.
func contentTools() []*catalog.Operation {
	image := catalog.Block{Type: "image", Data: picture, MIME: "image/png"}
	embedded := func(uri string) catalog.Block {
		return catalog.Block{Type: "resource", URI: uri, MIME: "text/plain", Text: "The text of an embedded resource."}
	}
	return []*catalog.Operation{
		tool("test_simple_text", "Answers with a text.", anyInput, blocks(text("This is a simple text response for testing."))),
		tool("test_image_content", "Answers with a picture.", anyInput, blocks(image)),
		tool("test_audio_content", "Answers with a sound.", anyInput, blocks(catalog.Block{Type: "audio", Data: sound, MIME: "audio/wav"})),
		tool("test_embedded_resource", "Answers with a resource.", anyInput, blocks(embedded("test://embedded-resource"))),
		tool("test_multiple_content_types", "Answers with a text, a picture and a resource.", anyInput,
			blocks(text("Several kinds of content:"), image, embedded("test://mixed-content-resource"))),
		tool("json_schema_2020_12_tool", "Takes an address described with words of JSON Schema 2020-12.", schema202012, echo),
		tool("test_x_mcp_header", "Takes a region that is mirrored in a header.", mirrored, echo),
	}
}

// schema202012 uses the vocabulary that must survive tools/list.
const schema202012 = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},
"phone":{"type":"string"},"email":{"type":"string"}},
"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},
"additionalProperties":false}`

// mirrored has an argument that clients repeat in a header.
const mirrored = `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`

// echo answers with its input.
func echo(_ context.Context, c *catalog.Call) (catalog.Result, error) {
	return catalog.Result{Value: c.In}, nil
}

// behaviourTools report, fail, notify.
func behaviourTools() []*catalog.Operation {
	return []*catalog.Operation{
		tool("test_tool_with_logging", "Logs three times.", anyInput, withLogging),
		tool("test_tool_with_progress", "Reports progress three times.", anyInput, withProgress),
		tool("test_error_handling", "Fails.", anyInput, func(context.Context, *catalog.Call) (catalog.Result, error) {
			return catalog.Result{IsError: true, Blocks: []catalog.Block{text("This tool fails on purpose.")}}, nil
		}),
		tool("test_logging_tool", "Logs once.", anyInput, func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			c.Log("info", canonjson.String("test_logging_tool runs"))
			return said("Logged, if anybody asked for it.")
		}),
		tool("test_streaming_elicitation", "Reports progress and answers.", anyInput, withProgress),
		announcer("test_trigger_tool_change", "Announces a changed list of tools.", catalog.Change{Tools: true}),
		announcer("test_trigger_prompt_change", "Announces a changed list of prompts.", catalog.Change{Prompts: true}),
	}
}

// pause lies between the steps of the tools that report.
const pause = 50 * time.Millisecond

// withLogging logs at the beginning, in the middle and at the end.
func withLogging(_ context.Context, c *catalog.Call) (catalog.Result, error) {
	for i, line := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
		if i > 0 {
			time.Sleep(pause)
		}
		c.Log("info", canonjson.String(line))
	}
	return said("Three lines were logged.")
}

// withProgress reports 0, 50 and 100 of 100.
func withProgress(_ context.Context, c *catalog.Call) (catalog.Result, error) {
	for done := 0.0; done <= 100; done += 50 {
		c.Progress(done, 100, fmt.Sprintf("%.0f of 100", done))
		time.Sleep(pause)
	}
	return said("Done.")
}

// announcer makes a tool that tells the clients of a change.
func announcer(name, doc string, change catalog.Change) *catalog.Operation {
	op := tool(name, doc, anyInput, func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
		c.Notify(change)
		return said("Announced.")
	})
	op.Publish.Notifies = true
	return op
}

// resources are the fixed ones and a template.
func resources() []*catalog.Operation {
	template := &catalog.Operation{
		Name: "template", Doc: "A resource with a variable.", Slot: catalog.Context, In: catalog.MustSchema(anyInput),
		Effects: catalog.Effects{ReadOnly: catalog.Yes},
		Publish: catalog.Publish{Resources: []catalog.Resource{{
			Template: "test://template/{id}/data", Name: "template", Doc: "A resource with a variable.", MIME: "application/json",
			Match: func(uri string) (canonjson.Value, bool, error) {
				id, prefixed := strings.CutPrefix(uri, "test://template/")
				id, suffixed := strings.CutSuffix(id, "/data")
				if !prefixed || !suffixed || id == "" || strings.Contains(id, "/") {
					return canonjson.Value{}, false, nil
				}
				return canonjson.Object(canonjson.M("id", canonjson.String(id))), true, nil
			},
		}}},
		Run: func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			id := c.In.Get("id")
			return catalog.Result{Value: canonjson.Object(
				canonjson.M("id", id), canonjson.M("templateTest", canonjson.Bool(true)),
				canonjson.M("data", canonjson.String("Data for ID: "+id.Str())))}, nil
		},
	}
	return []*catalog.Operation{
		resource("static-text", "test://static-text", "text/plain", blocks(text("This is the content of the static text resource."))),
		resource("static-binary", "test://static-binary", "image/png", blocks(catalog.Block{Data: picture})),
		resource("watched-resource", "test://watched-resource", "text/plain", blocks(text("Watched resource content"))),
		template,
	}
}

// prompts are with and without arguments, media and questions.
func prompts() []*catalog.Operation {
	withArguments := prompt("test_prompt_with_arguments", "Repeats its two arguments.", func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
		return said("Prompt with arguments: arg1='%s', arg2='%s'", c.In.Get("arg1").Str(), c.In.Get("arg2").Str())
	}, "arg1", "arg2")
	withArguments.Publish.Prompt.Complete = func(_ context.Context, _ *catalog.Call, _, prefix string) ([]string, error) {
		return []string{prefix + "-one", prefix + "-two"}, nil
	}
	return []*catalog.Operation{
		prompt("test_simple_prompt", "A prompt without arguments.", blocks(text("This is a simple prompt for testing."))),
		withArguments,
		prompt("test_prompt_with_embedded_resource", "Embeds a resource.", func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			return catalog.Result{Blocks: []catalog.Block{
				{Type: "resource", URI: c.In.Get("resourceUri").Str(), MIME: "text/plain", Text: "Embedded resource content for testing."},
				text("Please process the embedded resource above."),
			}}, nil
		}, "resourceUri"),
		prompt("test_prompt_with_image", "Holds a picture.", blocks(
			catalog.Block{Type: "image", Data: picture, MIME: "image/png"}, text("Please analyze the image above."))),
		prompt("test_input_required_result_prompt", "Asks for its context.", inputPrompt),
	}
}

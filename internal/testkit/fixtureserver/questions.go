package main

import (
	"context"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
)

// raw is JSON text in this file.
func raw(text string) canonjson.Value {
	v, err := canonjson.ParseStrict([]byte(text), canonjson.Limits{})
	if err != nil {
		panic(err)
	}
	return v
}

// elicit is a question to a person, with the schema of the answer.
func elicit(key, message, schema string) catalog.InputRequest {
	return catalog.InputRequest{Key: key, Method: "elicitation/create", Params: canonjson.Object(
		canonjson.M("message", canonjson.String(message)), canonjson.M("requestedSchema", raw(schema)))}
}

// sample is a question to the client's model.
func sample(key, prompt string) catalog.InputRequest {
	return catalog.InputRequest{Key: key, Method: "sampling/createMessage", Params: canonjson.Object(
		canonjson.M("messages", canonjson.Array(canonjson.Object(
			canonjson.M("role", canonjson.String("user")),
			canonjson.M("content", canonjson.Object(
				canonjson.M("type", canonjson.String("text")), canonjson.M("text", canonjson.String(prompt))))))),
		canonjson.M("maxTokens", canonjson.Int(100)))}
}

// listRoots asks for the client's roots.
func listRoots(key string) catalog.InputRequest {
	return catalog.InputRequest{Key: key, Method: "roots/list"}
}

// nameSchema asks for a name, okSchema for a yes.
const (
	nameSchema = `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`
	okSchema   = `{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`
)

// accepted is the content of an accepted answer; Absent for every other.
func accepted(c *catalog.Call, key string) canonjson.Value {
	answer := c.Answers.Get(key)
	if answer.Get("action").Str() != "accept" {
		return canonjson.Value{}
	}
	return answer.Get("content")
}

// sampled is the text of a model's answer. Older clients may send one block or a list of them.
func sampled(c *catalog.Call, key string) string {
	content := c.Answers.Get(key).Get("content")
	if items := content.Items(); len(items) > 0 {
		content = items[0]
	}
	return content.Get("text").Str()
}

// need asks, and keeps state until the answers come.
func need(state canonjson.Value, requests ...catalog.InputRequest) (catalog.Result, error) {
	return catalog.Result{}, &catalog.NeedInput{Requests: requests, State: state}
}

// olderTools ask while the call is held, for the era with sessions.
func olderTools() []*catalog.Operation {
	elicitation := func(schema string) doing {
		return func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
			answer := c.Answers.Get("input")
			if answer.IsAbsent() {
				return need(canonjson.Value{}, elicit("input", or(c.In.Get("message").Str(), "Please answer"), schema))
			}
			content := "{}"
			if v := answer.Get("content"); !v.IsAbsent() {
				content = string(v.AppendJSON(nil))
			}
			return said("Elicitation completed: action=%s, content=%s", answer.Get("action").Str(), content)
		}
	}
	return []*catalog.Operation{
		tool("test_sampling", "Asks the client's model.", `{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}`,
			func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
				if c.Answers.IsAbsent() {
					return need(canonjson.Value{}, sample("input", c.In.Get("prompt").Str()))
				}
				return said("LLM response: %s", sampled(c, "input"))
			}),
		tool("test_elicitation", "Asks for a user name.", `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`,
			elicitation(`{"type":"object","properties":{"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}},"required":["username","email"]}`)),
		tool("test_elicitation_sep1034_defaults", "Asks with defaults.", anyInput, elicitation(defaultsSchema)),
		tool("test_elicitation_sep1330_enums", "Asks with choices.", anyInput, elicitation(enumsSchema)),
	}
}

// or is a, or b when a is empty.
func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// defaultsSchema has a default of every kind.
const defaultsSchema = `{"type":"object","properties":{
"name":{"type":"string","description":"User name","default":"John Doe"},
"age":{"type":"integer","description":"User age","default":30},
"score":{"type":"number","description":"User score","default":95.5},
"status":{"type":"string","description":"User status","enum":["active","inactive","pending"],"default":"active"},
"verified":{"type":"boolean","description":"Verification status","default":true}}}`

// enumsSchema has a choice of every kind.
const enumsSchema = `{"type":"object","properties":{
"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
"untitledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"type":"string","enum":["option1","option2","option3"]}},
"titledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"anyOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]}}}}`

// inputTools answer with questions, for the stateless era.
func inputTools() []*catalog.Operation {
	return []*catalog.Operation{
		tool("test_missing_capability", "Asks the client's model, which the client must have.", anyInput, askModel),
		tool("test_input_required_result_elicitation", "Asks for a name.", anyInput, askName),
		tool("test_input_required_result_sampling", "Asks the client's model.", anyInput, askModel),
		tool("test_input_required_result_list_roots", "Asks for the roots.", anyInput, askRoots),
		tool("test_input_required_result_request_state", "Keeps a state while it asks.", anyInput, askState("state-ok")),
		tool("test_input_required_result_tampered_state", "Keeps a state that must come back unchanged.", anyInput, askState("state-ok")),
		tool("test_input_required_result_multiple_inputs", "Asks three ways at once.", anyInput, askAll),
		tool("test_input_required_result_multi_round", "Asks twice.", anyInput, askTwice),
		tool("test_input_required_result_capabilities", "Asks what the client can answer.", anyInput, askWhatItCan),
	}
}

// askName greets by name.
func askName(_ context.Context, c *catalog.Call) (catalog.Result, error) {
	if name := accepted(c, "user_name").Get("name").Str(); name != "" {
		return said("Hello, %s!", name)
	}
	return need(canonjson.Value{}, elicit("user_name", "What is your name?", nameSchema))
}

// askModel repeats what the client's model says.
func askModel(_ context.Context, c *catalog.Call) (catalog.Result, error) {
	for _, m := range c.Answers.Members() {
		if text := sampled(c, m.Name); text != "" {
			return said("The model said: %s", text)
		}
	}
	return need(canonjson.Value{}, sample("capital_question", "What is the capital of France?"))
}

// askRoots counts the roots.
func askRoots(_ context.Context, c *catalog.Call) (catalog.Result, error) {
	if roots := c.Answers.Get("client_roots").Get("roots"); roots.Kind() == canonjson.KindArray {
		return said("%d roots", roots.Len())
	}
	return need(canonjson.Value{}, listRoots("client_roots"))
}

// askState answers with word when both the state and the yes came back.
func askState(word string) doing {
	return func(_ context.Context, c *catalog.Call) (catalog.Result, error) {
		if c.State.Str() == word && accepted(c, "confirm").Get("ok").Bool() {
			return said("%s: the state came back", word)
		}
		return need(canonjson.String(word), elicit("confirm", "Please confirm", okSchema))
	}
}

// askAll needs a name, a greeting and the roots.
func askAll(_ context.Context, c *catalog.Call) (catalog.Result, error) {
	name, greeting := accepted(c, "user_name").Get("name").Str(), sampled(c, "greeting")
	roots := c.Answers.Get("client_roots").Get("roots")
	if name != "" && greeting != "" && roots.Kind() == canonjson.KindArray {
		return said("%s %s: %d roots", greeting, name, roots.Len())
	}
	return need(canonjson.String("asked"), elicit("user_name", "What is your name?", nameSchema),
		sample("greeting", "Generate a greeting"), listRoots("client_roots"))
}

// askTwice asks for a name, then for a colour, and keeps the name in its state.
func askTwice(_ context.Context, c *catalog.Call) (catalog.Result, error) {
	name := c.State.Get("name").Str()
	if color := accepted(c, "step2").Get("color").Str(); name != "" && color != "" {
		return said("%s likes %s", name, color)
	}
	if answer := accepted(c, "step1").Get("name").Str(); answer != "" {
		return need(canonjson.Object(canonjson.M("name", canonjson.String(answer))),
			elicit("step2", "Step 2: What is your favorite color?", `{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}`))
	}
	return need(canonjson.Object(), elicit("step1", "Step 1: What is your name?", nameSchema))
}

// askWhatItCan asks only what the client declared that it can answer.
func askWhatItCan(_ context.Context, c *catalog.Call) (catalog.Result, error) {
	if c.Answers.Len() > 0 {
		return said("Answered.")
	}
	var requests []catalog.InputRequest
	if c.Client.Elicitation {
		requests = append(requests, elicit("user_name", "What is your name?", nameSchema))
	}
	if c.Client.Sampling {
		requests = append(requests, sample("greeting", "Generate a greeting"))
	}
	if c.Client.Roots {
		requests = append(requests, listRoots("client_roots"))
	}
	if len(requests) == 0 {
		return catalog.Result{}, fault.New(fault.MissingCapability, "the client can answer no question").
			With("requiredCapabilities", canonjson.Object(canonjson.M("sampling", canonjson.Object())))
	}
	return need(canonjson.Value{}, requests...)
}

// inputPrompt asks for a context.
func inputPrompt(_ context.Context, c *catalog.Call) (catalog.Result, error) {
	if context := accepted(c, "user_context").Get("context").Str(); context != "" {
		return said("Context: %s", context)
	}
	return need(canonjson.Value{}, elicit("user_context", "What context should the prompt use?",
		`{"type":"object","properties":{"context":{"type":"string"}},"required":["context"]}`))
}

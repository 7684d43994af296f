package main

import "encoding/json"

// printJSON prints one object as a result.
func printJSON(env *Env, v any) error {
	e := json.NewEncoder(env.Stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

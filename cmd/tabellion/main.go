// Command tabellion serves durable, governed documents to language-model agents over the Model Context Protocol, and
// looks after the store that they are kept in.
//
// Results go to stdout, words for people to stderr. See `tabellion --help`.
package main

import "os"

func main() {
	env, stop := systemEnv()
	code := run(env, os.Args[1:])
	stop()
	os.Exit(code)
}

package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand prints a completion script.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is the end of the help text.
func (*completionCommand) Help() string {
	return `Load it with: source <(tabellion completion bash), source <(tabellion completion zsh), or tabellion completion fish | source.

` + exitHelp
}

// Run prints the script for the grammar as it is.
func (c *completionCommand) Run(env *Env, app *kong.Kong) error {
	words := map[string][]string{}
	completions(app.Model.Node, "", words)
	scripts := map[string]func(map[string][]string) string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}
	_, err := fmt.Fprint(env.Stdout, scripts[c.Shell](words))
	return err
}

// completions collects what may follow each command path: its commands, or its flags.
func completions(n *kong.Node, path string, words map[string][]string) {
	var next []string
	for _, sub := range n.Children {
		if sub.Hidden {
			continue
		}
		next = append(next, sub.Name)
		completions(sub, strings.TrimSpace(path+" "+sub.Name), words)
	}
	for _, f := range n.Flags {
		if !f.Hidden {
			next = append(next, "--"+f.Name)
		}
	}
	for _, a := range n.Positional {
		next = append(next, a.EnumSlice()...)
	}
	words[path] = next
}

// paths are the command paths in order.
func paths(words map[string][]string) []string {
	var out []string
	for p := range words {
		out = append(out, p)
	}
	sort.Strings(out)
	return out
}

// cases are the branches of a shell's case statement.
func cases(words map[string][]string) string {
	var b strings.Builder
	for _, p := range paths(words) {
		fmt.Fprintf(&b, "    %q) words=%q ;;\n", p, strings.Join(words[p], " "))
	}
	return b.String()
}

// bashScript completes in bash.
func bashScript(words map[string][]string) string {
	return `_tabellion() {
  local current="${COMP_WORDS[COMP_CWORD]}" path="" words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${COMP_WORDS[i]}" in -*) break ;; *) path="${path:+$path }${COMP_WORDS[i]}" ;; esac
  done
  case "$path" in
` + cases(words) + `  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ ${#COMPREPLY[@]} -eq 0 ]] && COMPREPLY=($(compgen -f -- "$current"))
}
complete -o filenames -F _tabellion tabellion
`
}

// zshScript completes in zsh.
func zshScript(words map[string][]string) string {
	return `#compdef tabellion
_tabellion() {
  local command="" list="" word
  for word in "${(@)words[2,CURRENT-1]}"; do
    case "$word" in -*) break ;; *) command="${command:+$command }$word" ;; esac
  done
  case "$command" in
` + strings.ReplaceAll(cases(words), "words=", "list=") + `  esac
  compadd -- ${=list}
  [[ "$PREFIX" == -* ]] || _files
}
compdef _tabellion tabellion
`
}

// fishScript completes in fish.
func fishScript(words map[string][]string) string {
	var b strings.Builder
	b.WriteString("complete -c tabellion -n __fish_use_subcommand -f\n")
	for _, p := range paths(words) {
		condition := "__fish_use_subcommand"
		if p != "" {
			var parts []string
			for _, w := range strings.Fields(p) {
				parts = append(parts, "__fish_seen_subcommand_from "+w)
			}
			condition = strings.Join(parts, "; and ")
		}
		for _, w := range words[p] {
			if name, ok := strings.CutPrefix(w, "--"); ok {
				fmt.Fprintf(&b, "complete -c tabellion -n '%s' -l %s\n", condition, name)
			} else {
				fmt.Fprintf(&b, "complete -c tabellion -n '%s' -f -a %s\n", condition, w)
			}
		}
	}
	return b.String()
}

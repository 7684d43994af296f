package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/tabellion-mcp/tabellion/policy"
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
	scripts := map[string]func() string{
		"bash": func() string { return bashScript(app.Model.Node) },
		"zsh":  func() string { return zshScript(words) },
		"fish": func() string { return fishScript(words) },
	}
	_, err := fmt.Fprint(env.Stdout, scripts[c.Shell]())
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
	for _, f := range flagsOf(n) {
		if !f.Hidden {
			next = append(next, "--"+f.Name)
		}
	}
	for _, a := range n.Positional {
		next = append(next, choices(a)...)
	}
	words[path] = next
}

// flagsOf are the flags that may stand behind a command: its own, and those of the one that it is by default.
func flagsOf(n *kong.Node) []*kong.Flag {
	if n.DefaultCmd == nil {
		return n.Flags
	}
	return append(append([]*kong.Flag{}, n.Flags...), n.DefaultCmd.Flags...)
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

// choices are the words that an argument may be, as far as they are known.
func choices(a *kong.Positional) []string {
	if a.Name != "capability" {
		return a.EnumSlice()
	}
	var out []string
	for _, c := range policy.Capabilities {
		out = append(out, string(c))
	}
	return out
}

// isPath tells whether a value is a file or folder, by what it is called in the help.
func isPath(name string) bool { return name == "FILE" || name == "DIR" || name == "dir" }

// bashScript completes in bash. What may stand where comes from the grammar: for each command its commands, its flags,
// those with a value, those whose value is a path, and the words of its arguments by position; "/" is a path.
func bashScript(root *kong.Node) string {
	return `_tabellion_of() {
  commands="" flags="" values=" " files=" " arguments=()
  case "$1" in
` + bashCases(root, "") + `  *) return 1 ;;
  esac
}
_tabellion() {
  local current="${COMP_WORDS[COMP_CWORD]}" path="" flag="" word i n=0
  local commands flags values files arguments
  _tabellion_of ""
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${COMP_WORDS[i]}"
    if [[ "$word" == "=" ]]; then continue; fi
    if [[ -n "$flag" ]]; then flag=""; continue; fi
    case "$word" in
    -*=*) ;;
    -*) [[ "$values" == *" $word "* ]] && flag="$word" ;;
    *)
      if [[ $n -eq 0 && " $commands " == *" $word "* ]]; then
        path="${path:+$path }$word"
        _tabellion_of "$path"
      else
        n=$((n + 1))
      fi ;;
    esac
  done
  [[ "$current" == "=" ]] && current=""
  if [[ -n "$flag" ]]; then
    COMPREPLY=()
    [[ "$files" == *" $flag "* ]] && COMPREPLY=($(compgen -f -- "$current"))
  elif [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  elif [[ -n "$commands" ]]; then
    COMPREPLY=($(compgen -W "$commands" -- "$current"))
  elif [[ "${arguments[n]}" == "/" ]]; then
    COMPREPLY=($(compgen -f -- "$current"))
  else
    COMPREPLY=($(compgen -W "${arguments[n]} $flags" -- "$current"))
  fi
}
complete -o filenames -F _tabellion tabellion
`
}

// bashCases are the branches of _tabellion_of for a command and those below it.
func bashCases(n *kong.Node, path string) string {
	var commands, flags, values, files, arguments []string
	var below strings.Builder
	for _, sub := range n.Children {
		if !sub.Hidden {
			commands = append(commands, sub.Name)
			below.WriteString(bashCases(sub, strings.TrimSpace(path+" "+sub.Name)))
		}
	}
	for _, f := range flagsOf(n) {
		names := []string{"--" + f.Name}
		if f.Short != 0 {
			names = append(names, "-"+string(f.Short))
		}
		if f.Hidden {
			continue
		}
		flags = append(flags, names[0])
		if !f.IsBool() {
			values = append(values, names...)
		}
		if isPath(f.PlaceHolder) {
			files = append(files, names...)
		}
	}
	for _, a := range n.Positional {
		words := strings.Join(choices(a), " ")
		if isPath(a.Name) {
			words = "/"
		}
		arguments = append(arguments, fmt.Sprintf("%q", words))
	}
	return fmt.Sprintf("  %q) commands=%q flags=%q values=%q files=%q arguments=(%s) ;;\n", path, strings.Join(commands, " "), strings.Join(flags, " "),
		" "+strings.Join(values, " ")+" ", " "+strings.Join(files, " ")+" ", strings.Join(arguments, " ")) + below.String()
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

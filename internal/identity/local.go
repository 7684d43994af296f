package identity

import (
	"fmt"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strings"
)

// localKinds are the kinds of subject that a configured local caller may have.
var localKinds = []string{"local", "user", "service"}

// Names of users, roles and tenants: a letter, digit or underscore first, so that no name is an option of a command,
// and no colon, which separates a subject's kind.
var (
	userName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._@+-]{0,127}$`)
	roleName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
)

// Local is the caller of stdio and of the command line, as configured by auth.local. A subject without a kind is
// "local:<subject>".
func Local(subject string, roles []string) (*Principal, error) {
	kind, name, ok := strings.Cut(subject, ":")
	if !ok {
		kind, name = "local", subject
	}
	if !slices.Contains(localKinds, kind) || !userName.MatchString(name) {
		return nil, fmt.Errorf("local subject %q is neither a name nor one of kind %s", subject, strings.Join(localKinds, ", "))
	}
	if err := checkNames("role", roleName, roles); err != nil {
		return nil, err
	}
	return newPrincipal(MethodStdio, kind+":"+name, nil, roles), nil
}

// newPrincipal puts the names together that policy assignments match.
func newPrincipal(m Method, subject string, also []string, roles []string) *Principal {
	p := &Principal{Subject: subject, Subjects: append([]string{subject}, also...), Roles: slices.Clone(roles), Method: m}
	for _, r := range roles {
		p.Subjects = append(p.Subjects, "role:"+r)
	}
	return p
}

// checkNames refuses a name that does not match, and one that comes twice.
func checkNames(what string, form *regexp.Regexp, names []string) error {
	for i, n := range names {
		if !form.MatchString(n) {
			return fmt.Errorf("%s %q is not of letters, digits and . _ -, at most 128 of them", what, clip(n))
		}
		if slices.Contains(names[:i], n) {
			return fmt.Errorf("%s %q is named twice", what, n)
		}
	}
	return nil
}

// clip cuts what a message repeats of the caller's own text to 64 bytes. The message quotes it.
func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "..."
	}
	return s
}

// OSUser is the name of the operating system's user, for the principal of a quick form. It is "me" when the system
// does not tell, or tells a name that no subject may have.
func OSUser() string {
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	for _, v := range []string{"USER", "LOGNAME", "USERNAME"} {
		if name == "" {
			name = os.Getenv(v)
		}
	}
	if i := strings.LastIndexAny(name, `\/`); i >= 0 {
		name = name[i+1:] // a Windows domain
	}
	if !userName.MatchString(name) {
		return "me"
	}
	return name
}

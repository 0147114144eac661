package main

import (
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// hidden replaces a secret.
const hidden = "xxxxx"

// These patterns match text that looks like a secret: the user and the password of a URL, and the
// value of a password assignment.
var (
	inAddress = regexp.MustCompile("://[^\\s\"'`]*@")
	named     = regexp.MustCompile(
		"(?i)([a-z_]*(?:pass|pwd|secret|token)[a-z_]*\\s*=\\s*)('[^']*'|[^\\s&\"'`]+)")
)

// leastSecret is the length in bytes of the shortest secret that is searched for in all output.
// Shorter secrets would be found in any text.
const leastSecret = 3

// hiding is a writer that passes on output and logs without secrets. It removes the secrets of the
// arguments, in whatever text a library repeats them, and text that looks like a secret. Its users
// must write each line with one Write, because a secret in two parts isn't found.
type hiding struct {
	io.Writer
	secrets *strings.Replacer
}

func hide(w io.Writer, args []string) io.Writer {
	var pairs []string
	for _, arg := range args {
		for _, secret := range secretsIn(arg) {
			for _, spelled := range []string{
				secret, url.QueryEscape(secret), url.PathEscape(secret),
				strings.Trim(strconv.Quote(secret), `"`),
			} {
				if len(secret) >= leastSecret {
					pairs = append(pairs, spelled, hidden)
				}
			}
		}
	}
	return &hiding{w, strings.NewReplacer(pairs...)}
}

func (h *hiding) Write(p []byte) (int, error) {
	if _, err := io.WriteString(h.Writer,
		withoutSecrets(h.secrets.Replace(string(p)))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// withoutSecrets returns a text without the parts that look like a secret.
func withoutSecrets(text string) string {
	return named.ReplaceAllString(inAddress.ReplaceAllString(text, "://"+hidden+"@"), "${1}"+hidden)
}

// secretsIn returns the secrets in an argument: the password in a URL, and the values of
// assignments such as password=xyz.
func secretsIn(arg string) (secrets []string) {
	for _, m := range named.FindAllStringSubmatch(arg, -1) {
		secrets = append(secrets, strings.Trim(m[2], "'"))
		if plain, err := url.QueryUnescape(m[2]); err == nil {
			secrets = append(secrets, plain)
		}
	}
	_, rest, isURL := strings.Cut(arg, "://")
	if at := strings.LastIndexByte(rest, '@'); isURL && at >= 0 {
		_, password, _ := strings.Cut(rest[:at], ":")
		secrets = append(secrets, password)
		if plain, err := url.PathUnescape(password); err == nil {
			secrets = append(secrets, plain)
		}
	}
	return secrets
}

package main

import (
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// hidden stands where a secret was.
const hidden = "xxxxx"

// What looks like a secret, whoever wrote it: the user and the password of a URL, and what is said
// to be a password.
var (
	inAddress = regexp.MustCompile("://[^\\s\"'`]*@")
	named     = regexp.MustCompile("(?i)([a-z_]*(?:pass|pwd|secret|token)[a-z_]*\\s*=\\s*)('[^']*'|[^\\s&\"'`]+)")
)

// leastSecret is how long a secret is that is looked for everywhere: shorter ones are in all texts.
const leastSecret = 3

// hiding passes on what is printed and logged, without secrets: those of the arguments, in whatever
// words a library repeats them, and what looks like one. Each line comes in one Write.
type hiding struct {
	io.Writer
	secrets *strings.Replacer
}

func hide(w io.Writer, args []string) io.Writer {
	var pairs []string
	for _, arg := range args {
		for _, secret := range secretsIn(arg) {
			for _, spelled := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), strings.Trim(strconv.Quote(secret), `"`)} {
				if len(secret) >= leastSecret {
					pairs = append(pairs, spelled, hidden)
				}
			}
		}
	}
	return &hiding{w, strings.NewReplacer(pairs...)}
}

func (h *hiding) Write(p []byte) (int, error) {
	if _, err := io.WriteString(h.Writer, withoutSecrets(h.secrets.Replace(string(p)))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// withoutSecrets is a text without what looks like one.
func withoutSecrets(text string) string {
	return named.ReplaceAllString(inAddress.ReplaceAllString(text, "://"+hidden+"@"), "${1}"+hidden)
}

// secretsIn are the passwords in an argument, if it is a URL or has one in it.
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

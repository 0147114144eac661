package main

import (
	"os"
	"regexp"
	"testing"
)

// Every file to which the README links exists.
func TestReadmeLinks(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`\]\(([^):#]+)\)`).FindAllStringSubmatch(string(text), -1)
	if len(links) < 15 {
		t.Errorf("only %d links to files", len(links))
	}
	for _, link := range links {
		if _, err := os.Stat(link[1]); err != nil {
			t.Errorf("the README links to %s: %v", link[1], err)
		}
	}
}

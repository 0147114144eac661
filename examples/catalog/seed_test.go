package main

import (
	"strings"
	"testing"
)

func TestSeedIsAShop(t *testing.T) {
	rows, err := parseSeed(seedText)
	if err != nil {
		t.Fatal(err)
	}
	count := map[int]int{}
	for _, r := range rows {
		count[r.Level]++
	}
	if count[1] != 20 || count[2] != 151 || count[3] != 1359 || len(count) != 3 {
		t.Errorf("categories by level: %v, want 20, 151 and 1359", count)
	}
}

func TestSeedNamesAreUniqueBelowTheirParent(t *testing.T) {
	rows, err := parseSeed(seedText)
	if err != nil {
		t.Fatal(err)
	}
	type place struct {
		parentID int
		name     string
	}
	seen := map[place]bool{}
	for _, r := range rows {
		p := place{r.ParentID, strings.ToLower(r.Name)}
		if seen[p] {
			t.Errorf("%q is there twice below category %d", r.Name, r.ParentID)
		}
		seen[p] = true
	}
}

func TestSeedIsNumberedLevelByLevel(t *testing.T) {
	rows, err := parseSeed(
		"# the shop\nAudio\n  Radios: Portable, Kitchen\n\nGarden\n  Tools: Spades, Hoes\n  Seeds: Herbs\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []row{
		{1, 0, 1, "Audio", 1},
		{2, 0, 1, "Garden", 2},
		{3, 1, 2, "Radios", 1},
		{4, 2, 2, "Tools", 1},
		{5, 2, 2, "Seeds", 2},
		{6, 3, 3, "Portable", 1},
		{7, 3, 3, "Kitchen", 2},
		{8, 4, 3, "Spades", 1},
		{9, 4, 3, "Hoes", 2},
		{10, 5, 3, "Herbs", 1},
	}
	if len(rows) != len(want) {
		t.Fatalf("%d rows, want %d: %v", len(rows), len(want), rows)
	}
	for i := range want {
		if rows[i] != want[i] {
			t.Errorf("row %d: %v, want %v", i, rows[i], want[i])
		}
	}
}

func TestSeedErrorsNameTheLine(t *testing.T) {
	for name, text := range map[string]string{
		"a level-2 name before any level-1 name": "  Radios: Portable\n",
		"a level-2 name without children":        "Audio\n  Radios\n",
		"an empty level-3 name":                  "Audio\n  Radios: Portable,, Kitchen\n",
		"a level-1 name with children":           "Audio: Radios\n",
		"an empty level-2 name":                  "Audio\n  : Portable\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseSeed(text)
			if err == nil || !strings.Contains(err.Error(), "seed line ") {
				t.Errorf("error %v, want one that names the line", err)
			}
		})
	}
}

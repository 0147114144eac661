package main

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
)

//go:embed seed.txt
var seedText string

// row is one line of the category table.
type row struct {
	ID       int
	ParentID int // 0 at level 1
	Level    int // 1, 2 or 3
	Name     string
	Sort     int // place among the children of its parent, from 1
}

// branch is a category while the seed is read. It has no id yet.
type branch struct {
	name     string
	children []*branch
}

// parseSeed reads the outline of the categories. A level-1 name begins at the margin. A level-2
// name is indented by two spaces and followed by a colon and its level-3 names, separated by
// commas. Lines that begin with # are comments.
func parseSeed(text string) ([]row, error) {
	root := &branch{}
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := root.read(line); err != nil {
			return nil, fmt.Errorf("seed line %d: %w", i+1, err)
		}
	}
	return root.rows(), nil
}

func (root *branch) read(line string) error {
	name, children, hasChildren := strings.Cut(line, ":")
	switch indented := strings.HasPrefix(line, "  "); {
	case !indented && !hasChildren:
		_, err := root.add(name)
		return err
	case indented && hasChildren && len(root.children) > 0:
		level2, err := root.children[len(root.children)-1].add(name)
		for child := range strings.SplitSeq(children, ",") {
			if err == nil {
				_, err = level2.add(child)
			}
		}
		return err
	default:
		return errors.New(`neither a level-1 name nor, below one, an indented "name: child, child"`)
	}
}

func (b *branch) add(name string) (*branch, error) {
	name = strings.TrimSpace(name)
	if name == "" {
		return nil, errors.New("a name is missing")
	}
	child := &branch{name: name}
	b.children = append(b.children, child)
	return child, nil
}

// rows numbers the tree level by level, as if the shop had been planned from the top: the level-1
// ids are 1, 2, 3 and so on. It returns the rows in the order of their ids.
func (root *branch) rows() []row {
	type place struct {
		*branch
		parentID, level, sort int
	}
	var queue []place
	for i, b := range root.children {
		queue = append(queue, place{b, 0, 1, i + 1})
	}
	var rows []row
	// The queue grows by the children of each category that is taken from it.
	for id := 1; id <= len(queue); id++ {
		p := queue[id-1]
		rows = append(rows,
			row{ID: id, ParentID: p.parentID, Level: p.level, Name: p.name, Sort: p.sort})
		for i, b := range p.children {
			queue = append(queue, place{b, id, p.level + 1, i + 1})
		}
	}
	return rows
}

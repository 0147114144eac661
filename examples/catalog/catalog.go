package main

// category is one of the shop's categories, with the categories below it.
type category struct {
	ID       int        `json:"id"`
	ParentID int        `json:"parentId"` // 0 at level 1
	Name     string     `json:"name"`
	Children []category `json:"children,omitempty"` // in the shop's order; empty at level 3
}

// tree contains the level-1 categories with all categories below them, in the shop's order. The
// tree is the cached value.
type tree []category

// arrange makes the tree from rows. The rows are in the order of their places.
func arrange(rows []row) tree {
	below := map[int][]category{}
	for _, r := range rows {
		below[r.ParentID] = append(below[r.ParentID],
			category{ID: r.ID, ParentID: r.ParentID, Name: r.Name})
	}
	var grow func(id int) []category
	grow = func(id int) []category {
		for i, c := range below[id] {
			below[id][i].Children = grow(c.ID)
		}
		return below[id]
	}
	return grow(0)
}

// categoryMap is the data for the shop's menu. For each level-1 id it has the level-2 categories,
// in the shop's order, each with its level-3 children.
type categoryMap map[int][]category

// byID returns the category map. It shares the categories below level 1 with the tree.
func (t tree) byID() categoryMap {
	m := make(categoryMap, len(t))
	for _, c := range t {
		m[c.ID] = c.Children
		if c.Children == nil {
			m[c.ID] = []category{}
		}
	}
	return m
}

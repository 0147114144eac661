package main

// category is one of the shop's, with what is below it.
type category struct {
	ID       int        `json:"id"`
	ParentID int        `json:"parentId"` // 0 at level 1
	Name     string     `json:"name"`
	Children []category `json:"children,omitempty"` // in the shop's order; none at level 3
}

// tree is the level-1 categories with all that is below them, in the shop's order. It is what is
// cached.
type tree []category

// arrange makes the tree of rows that are in the order of their places.
func arrange(rows []row) tree {
	below := map[int][]category{}
	for _, r := range rows {
		below[r.ParentID] = append(below[r.ParentID], category{ID: r.ID, ParentID: r.ParentID, Name: r.Name})
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

// categoryMap is what the shop's menu is drawn from: for each level-1 id its level-2 categories, in
// the shop's order, each with its level-3 children.
type categoryMap map[int][]category

// byID is the category map. It shares what is below level 1 with the tree.
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

package main

import "testing"

// TestLayout checks that panels don't overlap, and that each has a unique ID, a description and queries.
func TestLayout(t *testing.T) {
	for _, d := range []dashboard{overview(), forwarder()} {
		taken, ids, titles := map[[2]int]string{}, map[int]bool{}, map[string]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.Title == "" || titles[p.Title] {
				t.Errorf("%s: the panel %d, %q, is not unique", d.Title, p.ID, p.Title)
			}
			ids[p.ID], titles[p.Title] = true, true
			if (p.Description == "" || len(p.Targets) == 0) != (p.Type == "row") {
				t.Errorf("%s: the panel %s has %d queries and the description %q", d.Title, p.Title, len(p.Targets), p.Description)
			}
			at := p.GridPos
			if at.X < 0 || at.X+at.W > columns || at.W < 1 || at.H < 1 {
				t.Errorf("%s: the panel %s is at %+v", d.Title, p.Title, at)
			}
			for x := at.X; x < at.X+at.W; x++ {
				for y := at.Y; y < at.Y+at.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: the panels %s and %s overlap", d.Title, other, p.Title)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

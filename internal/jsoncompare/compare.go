// Package jsoncompare tells where two JSON objects differ, without decoding them: it goes
// through both texts, and into a value only if its bytes are not those of its counterpart.
//
// It tells places, not how to get from one object to the other: that is what a patch is
// for. Members are matched by name, items of an array by index, so that one more at the
// beginning of an array changes all of them. A name that is there twice counts as the last
// of them, as for encoding/json.
package jsoncompare

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// Deepest is how many objects and arrays are gone into, one within the other. What
// differs below is one place, so that an object that is made for it takes no more than its
// size times this; no object of Kubernetes comes near.
const Deepest = 128

// Each calls each with every place where two JSON objects differ, as a JSON Pointer (RFC
// 6901), in the order of the pointers as text, until it gives false. The pointer is valid
// until each returns.
//
// A value that is on one side only, or is of another kind there, is one place: its own,
// not those of what is in it. Strings are compared as what they say, however they are
// escaped, and numbers as they are written: 1.0 is not 1, as no two writers need agree
// which numbers are the same. Who sent the one and has the other has something to tell.
//
// It fails with [jsonscan.ErrSyntax] if either is not a JSON object, and then has not
// called each.
func Each(before, after []byte, each func(pointer []byte) bool) error {
	c := comparison{each: each}
	b, err := members(before)
	if err != nil {
		return err
	}
	a, err := members(after)
	if err != nil {
		return err
	}
	c.visit(matched(b, a, Deepest), Deepest)
	return nil
}

type comparison struct {
	each    func(pointer []byte) bool
	pointer []byte // of what is visited
	stopped bool
}

// place is a member or an item whose bytes are not the same on both sides.
type place struct {
	token         []byte // of the pointer, escaped
	before, after []byte // nil where it is not there
	inside        bool   // it is to be gone into
}

// visit goes through places that have one parent.
func (c *comparison) visit(places []place, depth int) {
	if len(places) > 1 {
		slices.SortFunc(places, place.order)
	}
	end := len(c.pointer)
	for _, p := range places {
		c.pointer = append(append(c.pointer[:end], '/'), p.token...)
		switch {
		case !p.inside:
			c.stopped = !sameText(p.before, p.after) && !c.each(c.pointer)
		case p.before[0] == '{':
			before, _ := members(p.before) // it has been gone through before
			after, _ := members(p.after)
			c.visit(matched(before, after, depth-1), depth-1)
		default:
			c.visit(items(p.before, p.after, depth-1), depth-1)
		}
		if c.stopped {
			return
		}
	}
}

// newPlace takes values of which at least one is there.
func newPlace(token, before, after []byte, depth int) place {
	inside := depth > 1 && before != nil && after != nil && before[0] == after[0] && (before[0] == '{' || before[0] == '[')
	return place{token, before, after, inside}
}

// order is that of the pointers. That of what is gone into goes on after its token with a
// slash, and that comes after some characters.
func (p place) order(q place) int {
	shared := min(len(p.token), len(q.token))
	if c := bytes.Compare(p.token[:shared], q.token[:shared]); c != 0 {
		return c
	}
	return cmp.Compare(p.following(shared), q.following(shared))
}

// following is the byte of the pointer after n bytes of the token, or -1 at its end.
func (p place) following(n int) int {
	switch {
	case n < len(p.token):
		return int(p.token[n])
	case p.inside:
		return '/'
	}
	return -1
}

// sameText tells whether both are strings and say the same.
func sameText(before, after []byte) bool {
	if before == nil || after == nil || before[0] != '"' || after[0] != '"' {
		return false
	}
	if bytes.IndexByte(before, '\\') < 0 && bytes.IndexByte(after, '\\') < 0 {
		return false // their bytes are not the same
	}
	b, a := jsonscan.New(before), jsonscan.New(after)
	return bytes.Equal(b.Text(), a.Text())
}

type member struct{ name, value []byte }

func (m member) order(n member) int { return bytes.Compare(m.name, n.name) }

// members are those of an object, each name once, by name.
func members(object []byte) ([]member, error) {
	all := make([]member, 0, 16)
	s := jsonscan.New(object)
	ordered := true
	for s.Object(); s.Next(); {
		m := member{name: s.Key()}
		m.value = s.Skip()
		ordered = ordered && (len(all) == 0 || all[len(all)-1].order(m) < 0)
		all = append(all, m)
	}
	if err := s.End(); err != nil || ordered {
		return all, err
	}
	slices.SortStableFunc(all, member.order)
	last := all[:0]
	for n, m := range all {
		if n+1 == len(all) || m.order(all[n+1]) != 0 {
			last = append(last, m)
		}
	}
	return last, nil
}

// matched gives the places of the members that differ.
func matched(before, after []member, depth int) []place {
	var places []place
	for len(before) > 0 || len(after) > 0 {
		var b, a member
		order := 0
		switch {
		case len(after) == 0:
			order = -1
		case len(before) == 0:
			order = 1
		default:
			order = before[0].order(after[0])
		}
		if order <= 0 {
			b, before = before[0], before[1:]
		}
		if order >= 0 {
			a, after = after[0], after[1:]
		}
		if bytes.Equal(b.value, a.value) {
			continue
		}
		name := b.name
		if order > 0 {
			name = a.name
		}
		places = append(places, newPlace(escaped(name), b.value, a.value, depth))
	}
	return places
}

// items gives the places of the items that differ.
func items(before, after []byte, depth int) []place {
	var places []place
	b, a := jsonscan.New(before), jsonscan.New(after)
	b.Array()
	a.Array()
	inBefore, inAfter := true, true
	for n := 0; ; n++ {
		var old, now []byte
		if inBefore = inBefore && b.NextItem(); inBefore {
			old = b.Skip()
		}
		if inAfter = inAfter && a.NextItem(); inAfter {
			now = a.Skip()
		}
		if !inBefore && !inAfter {
			return places
		}
		if !bytes.Equal(old, now) {
			places = append(places, newPlace(strconv.AppendInt(nil, int64(n), 10), old, now, depth))
		}
	}
}

// escaped is a name as it is in a pointer.
func escaped(name []byte) []byte {
	if bytes.IndexByte(name, '~') < 0 && bytes.IndexByte(name, '/') < 0 {
		return name
	}
	name = bytes.ReplaceAll(name, []byte("~"), []byte("~0"))
	return bytes.ReplaceAll(name, []byte("/"), []byte("~1"))
}

// Package jsoncompare finds the places where two JSON objects differ, without decoding
// them. It scans both texts, and descends into a value only if its bytes differ from those
// of its counterpart.
//
// Members are matched by name and items of an array by index, so an item inserted at the beginning
// of an array changes all of them. Of duplicate members, the last one counts, as in encoding/json.
// A comparison gives up after too much work, which only crafted objects cause.
package jsoncompare

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// MaxDepth limits the nesting of objects and arrays that a comparison descends into. A deeper
// difference counts as one place at this depth. No Kubernetes object is nested nearly that deep.
const MaxDepth = 128

// maxWork limits the work of one comparison, in scanned bytes. A comparison scans a differing value
// once for each level above it, because the scan of an object or array includes the nested values.
// Each member and each place that the comparison holds in memory counts as storedWork bytes. With
// this limit, two objects of 1.5 MB, the largest that an API server stores, can differ five levels
// deep.
const (
	maxWork    = 16 << 20
	storedWork = 256
)

// maxPlaces is the maximum number of differing members or items of one object or array that a
// comparison visits. After that many, the comparison gives up.
const maxPlaces = 4096

// Each calls report with every place where two JSON objects differ, until report returns false. A
// place is a JSON Pointer (RFC 6901). The places are in the order of the pointers as text. The
// pointer is valid until report returns.
//
// A value that exists on one side only, or has a different type on each side, is one place,
// whatever it contains. Strings are compared after unescaping. Numbers are compared as text: 1.0
// and 1 differ, because writers do not agree on which numbers are equal.
//
// Each returns false if it gave up because the comparison takes too much work. In that case, the
// objects might differ in more places. Whether Each gives up depends only on the two texts.
//
// Each returns [jsonscan.ErrSyntax] if either text is not a JSON object. In that case, it has not
// called report.
func Each(before, after []byte, report func(pointer []byte) bool) (complete bool, err error) {
	c := comparison{sorted: true, work: maxWork, report: func(pointer, _, _ []byte) bool { return report(pointer) }}
	return c.compare(before, after)
}

// Edits is like Each, but for a JSON Patch (RFC 6902): it calls report with the operations that turn
// before into after, in the order in which to apply them. The old value is nil for an add, the new
// value is nil for a remove, and neither is nil for a replace.
func Edits(before, after []byte, report func(pointer, old, now []byte) bool) (complete bool, err error) {
	c := comparison{work: maxWork, report: report}
	return c.compare(before, after)
}

type comparison struct {
	report  func(pointer, before, after []byte) bool
	sorted  bool   // report places in the order of their pointers, as Each does, not as Edits does
	pointer []byte // pointer to the visited value
	stopped bool   // report returned false, or the comparison gave up
	work    int    // left; negative if the comparison gave up
}

// spend subtracts work, and reports whether the comparison may continue.
func (c *comparison) spend(work int) bool {
	c.work -= work
	return c.work >= 0
}

func (c *comparison) compare(before, after []byte) (complete bool, err error) {
	c.work -= len(before) + len(after)
	b, err := c.members(before)
	if err != nil {
		return false, err
	}
	a, err := c.members(after)
	if err != nil {
		return false, err
	}
	c.visitMembers(b, a, MaxDepth)
	return c.work >= 0, nil
}

// place is a member or an item whose bytes differ.
type place struct {
	token         []byte // last token of the pointer, escaped
	before, after []byte // nil if absent
	descend       bool   // the difference is within the value
}

// visit reports the places, which have the same parent. It descends into a place instead if the
// difference is within the value.
func (c *comparison) visit(places []place, depth int) {
	if !c.spend(storedWork * len(places)) {
		c.stopped = true
		return
	}
	tooMany := len(places) > maxPlaces
	places = places[:min(len(places), maxPlaces)]
	if c.sorted && len(places) > 1 {
		slices.SortFunc(places, place.order)
	}
	end := len(c.pointer)
	for _, p := range places {
		c.pointer = append(append(c.pointer[:end], '/'), p.token...)
		switch {
		case !p.descend:
			c.stopped = !sameText(p.before, p.after) && !c.report(c.pointer, p.before, p.after)
		case !c.spend(len(p.before) + len(p.after)):
			c.stopped = true
		case p.before[0] == '{':
			before, _ := c.members(p.before) // cannot fail, because the scan of the parent checked it
			after, _ := c.members(p.after)
			c.visitMembers(before, after, depth-1)
		default:
			c.visit(items(p.before, p.after, c.sorted, depth-1), depth-1)
		}
		if c.stopped {
			return
		}
	}
	if tooMany {
		c.work, c.stopped = -1, true
	}
}

// visitMembers reports the differences between the members of two objects.
func (c *comparison) visitMembers(before, after []member, depth int) {
	if c.work < 0 { // not all members are known
		c.stopped = true
		return
	}
	c.visit(matched(before, after, depth), depth)
}

// newPlace returns a place that exists on at least one side.
func newPlace(token, before, after []byte, depth int) place {
	descend := depth > 1 && before != nil && after != nil && before[0] == after[0] && (before[0] == '{' || before[0] == '[')
	return place{token, before, after, descend}
}

// order compares the pointers of two places as text. A pointer to a place within a value continues
// with a slash, which sorts after some characters.
func (p place) order(q place) int {
	shared := min(len(p.token), len(q.token))
	if c := bytes.Compare(p.token[:shared], q.token[:shared]); c != 0 {
		return c
	}
	return cmp.Compare(p.following(shared), q.following(shared))
}

// following returns byte n of the pointer from this token on, or -1 at its end.
func (p place) following(n int) int {
	switch {
	case n < len(p.token):
		return int(p.token[n])
	case p.descend:
		return '/'
	}
	return -1
}

// sameText reports whether both values are strings with the same content.
func sameText(before, after []byte) bool {
	if before == nil || after == nil || before[0] != '"' || after[0] != '"' {
		return false
	}
	if bytes.IndexByte(before, '\\') < 0 && bytes.IndexByte(after, '\\') < 0 {
		return false // the bytes differ, and nothing is escaped
	}
	b, a := jsonscan.New(before), jsonscan.New(after)
	return bytes.Equal(b.Text(), a.Text())
}

type member struct{ name, value []byte }

func (m member) order(n member) int { return bytes.Compare(m.name, n.name) }

// members returns the members of an object, sorted by name, without duplicates. If there are more
// members than the remaining work allows, it returns only some of them.
func (c *comparison) members(object []byte) ([]member, error) {
	all := make([]member, 0, 16)
	s := jsonscan.New(object)
	ordered := true
	for s.Object(); s.Next(); {
		if c.work < 0 {
			s.Skip()
			continue
		}
		m := member{name: s.Key()}
		m.value = s.Skip()
		ordered = ordered && (len(all) == 0 || all[len(all)-1].order(m) < 0)
		all = append(all, m)
		c.work -= storedWork
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

// matched returns the places of the members that differ, up to one more than maxPlaces.
func matched(before, after []member, depth int) []place {
	var places []place
	for len(places) <= maxPlaces && (len(before) > 0 || len(after) > 0) {
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

// items returns the places of the items that differ, up to one more than maxPlaces. If sorted is set,
// each token is the index of the item. Otherwise, it is the index that a JSON Patch needs.
func items(before, after []byte, sorted bool, depth int) []place {
	var places []place
	b, a := jsonscan.New(before), jsonscan.New(after)
	b.Array()
	a.Array()
	inBefore, inAfter := true, true
	length := 0 // number of items of after so far
	for n := 0; len(places) <= maxPlaces; n++ {
		var old, now []byte
		if inBefore = inBefore && b.NextItem(); inBefore {
			old = b.Skip()
		}
		if inAfter = inAfter && a.NextItem(); inAfter {
			now = a.Skip()
			length++
		}
		if !inBefore && !inAfter {
			break
		}
		if bytes.Equal(old, now) {
			continue
		}
		token := strconv.AppendInt(nil, int64(n), 10)
		switch {
		case sorted:
		case !inAfter: // each remove shifts the next item to this index
			token = strconv.AppendInt(nil, int64(length), 10)
		case !inBefore: // each add appends
			token = []byte("-")
		}
		places = append(places, newPlace(token, old, now, depth))
	}
	return places
}

// escaped returns a name as a token of a pointer.
func escaped(name []byte) []byte {
	if bytes.IndexByte(name, '~') < 0 && bytes.IndexByte(name, '/') < 0 {
		return name
	}
	name = bytes.ReplaceAll(name, []byte("~"), []byte("~0"))
	return bytes.ReplaceAll(name, []byte("/"), []byte("~1"))
}

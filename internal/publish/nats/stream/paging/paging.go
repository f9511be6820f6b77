// Package paging lists the subjects of a stream page by page, even while the stream changes. The
// caller fetches the pages.
package paging

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Page is a part of the server's list of subjects. The list is sorted by bytes. Each page is a snapshot
// of the list at one moment.
type Page struct {
	Subjects map[string]uint64 // the subjects from the requested offset on, at most Limit
	Limit    int
	Total    int // number of subjects in the list
}

// spareRequests is added to twice the number of pages. The sum limits the requests of Read, so that it
// ends even if the list keeps changing.
const spareRequests = 50

// Read fetches pages and calls found once with each subject that is in the list during the whole
// call. It might or might not call found with a subject that is added or removed meanwhile. If the list
// changes too fast for the limited number of requests, Read returns an error.
//
// An offset alone is not sufficient. If a subject before the offset is removed, later subjects move to
// lower offsets, and the next page misses one of them. If a subject is added, the next page repeats a
// subject, so the number of subjects found does not show when the list ends.
//
// So Read keeps the subject up to which its result is complete. It uses a page only if the page begins
// at or before that subject, or at offset 0. Otherwise, it requests a page from an earlier offset. A
// subject that is in the list during the whole call, and that Read has not found, comes later in the
// order. So it is in the page or after the end of the page, however the list has changed.
//
// Read ignores subjects that are not valid UTF-8. JSON cannot represent them, so the server replaces
// the invalid bytes with U+FFFD. This hides their order, and several of them can look the same.
// Kuberelay's subjects are always ASCII.
func Read(fetch func(offset int) (Page, error), found func(subject string)) error {
	complete := ""
	offset, overlap, maxRequests := 0, 0, 1
	for requests := 1; requests <= maxRequests; requests++ {
		page, err := fetch(offset)
		switch {
		case err != nil:
			return err
		case page.Total == 0:
			return nil // no subject was in the list during the whole call
		case page.Limit < 2:
			return fmt.Errorf("the server lists %d subjects in pages of %d, want pages of at least 2", page.Total, page.Limit)
		case requests == 1:
			overlap = max(1, page.Limit/1000)
			maxRequests = spareRequests + 2*(page.Total/page.Limit)
		}
		first, last := page.bounds()
		if offset > 0 && (first == "" || first > complete) {
			overlap = min(2*overlap, page.Total)
			offset = max(0, min(offset, page.Total)-overlap)
			continue
		}
		for subject := range page.Subjects {
			if subject > complete && isValid(subject) {
				found(subject)
			}
		}
		complete = max(complete, last)
		if page.Total-offset <= page.Limit {
			return nil
		}
		offset += page.Limit - min(overlap, page.Limit/2)
	}
	return fmt.Errorf("the subjects change too fast: the list is incomplete after %d requests", maxRequests)
}

// bounds returns the first and the last valid subject of a page, or "" if it has none.
func (p Page) bounds() (first, last string) {
	for subject := range p.Subjects {
		if !isValid(subject) {
			continue
		}
		if first == "" || subject < first {
			first = subject
		}
		last = max(last, subject)
	}
	return first, last
}

func isValid(subject string) bool { return !strings.Contains(subject, string(utf8.RuneError)) }

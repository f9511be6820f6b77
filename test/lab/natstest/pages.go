package natstest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// Pages serves the JetStream API of a server in the returned domain, with pages of limit subjects in
// lists of subjects. If limit is 0, the page size of the server applies. Before the server reads the
// subjects of a page, Pages calls before with the offset of the page. If a request fails, Pages calls
// t.Error.
func Pages(t testing.TB, url string, limit int, before func(offset int)) (domain string) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(startLimit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	domain = "pages"
	_, err = nc.Subscribe("$JS."+domain+".API.>", func(m *nats.Msg) {
		api := strings.Replace(m.Subject, domain+".", "", 1)
		var of request
		if strings.HasPrefix(api, "$JS.API.STREAM.INFO.") && json.Unmarshal(m.Data, &of) == nil && of.Filter != "" {
			before(of.Offset)
			if limit > 0 {
				if err := respond(nc, m, api, of, limit); err != nil {
					t.Errorf("respond with subjects from %d on: %v", of.Offset, err)
				}
				return
			}
		}
		if err := nc.PublishRequest(api, m.Reply, m.Data); err != nil {
			t.Errorf("pass on %s: %v", api, err)
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return domain
}

type request struct {
	Filter string `json:"subjects_filter"`
	Offset int    `json:"offset"`
}

// respond responds as the server does (jsStreamInfoRequest in jetstream_api.go), but with pages of limit
// subjects.
func respond(nc *nats.Conn, m *nats.Msg, api string, of request, limit int) error {
	all, _ := json.Marshal(request{Filter: of.Filter}) // a number and a string always marshal
	answer, err := nc.Request(api, all, startLimit)
	if err != nil {
		return err
	}
	var body, state map[string]json.RawMessage
	if err := json.Unmarshal(answer.Data, &body); err != nil {
		return err
	}
	if err := json.Unmarshal(body["state"], &state); err != nil {
		return err
	}
	var subjects map[string]uint64
	if list, ok := state["subjects"]; ok {
		if err := json.Unmarshal(list, &subjects); err != nil {
			return err
		}
		sorted := slices.Sorted(maps.Keys(subjects))
		from := min(of.Offset, len(sorted))
		for i, subject := range sorted {
			if i < from || i >= from+limit {
				delete(subjects, subject)
			}
		}
		state["subjects"], _ = json.Marshal(subjects) // this and the values below always marshal
		body["state"], _ = json.Marshal(state)
		body["offset"], _ = json.Marshal(of.Offset)
		body["limit"], _ = json.Marshal(limit)
		body["total"], _ = json.Marshal(len(sorted))
	}
	response, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return m.Respond(response)
}

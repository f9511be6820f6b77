package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/config"
)

func TestHistory(t *testing.T) {
	for _, f := range config.Fields() {
		if f.Name == "KUBERELAY_NATS_HISTORY" && f.Default != strconv.Itoa(history) {
			t.Errorf("the page assumes a history of %d, and the default is %s", history, f.Default)
		}
	}
}

func TestWritePage(t *testing.T) {
	var page strings.Builder
	if err := writePage(&page); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"%!", "<no value>", "NaN"} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("the page has %q in it:\n%s", bad, &page)
		}
	}
}

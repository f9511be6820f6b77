package main

import "testing"

func TestWriter(t *testing.T) {
	for _, tc := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"POD_NAMESPACE": "apps", "POD_NAME": "web-0"}, "apps/web-0"},
		{map[string]string{"POD_NAME": "web-0"}, "web-0"},
		{map[string]string{"POD_NAMESPACE": "apps"}, ""},
		{nil, ""},
	} {
		if got := writer(func(name string) string { return tc.env[name] }); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.env, got, tc.want)
		}
	}
}

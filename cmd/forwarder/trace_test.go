package main

import (
	"strings"
	"testing"

	"github.com/kuberelay/kuberelay/internal/tail"
)

func TestIsConsumed(t *testing.T) {
	const subject = "kuberelay.prod.apps.deployments.shop.web"
	for filters, want := range map[string]bool{
		"": true, ">": true, "kuberelay.>": true, subject: true, "kuberelay.*.*.*.*.*": true, "kuberelay.prod.apps.deployments.shop.>": true,
		"kuberelay.other.>": false, "kuberelay.*": false, subject + ".>": false, subject + ".x": false, "kuberelay.prod.*.pods.*.*": false,
		"kuberelay.other.> kuberelay.prod.>": true,
	} {
		if got := isConsumed(strings.Fields(filters), subject); got != want {
			t.Errorf("%q: got %t, want %t", filters, got, want)
		}
	}
}

// Without an API server, the name on the command line tells the resource.
func TestGuessedResource(t *testing.T) {
	for text, want := range map[string]string{
		"pod": "pods", "pods": "pods", "po": "pods", "Pod": "pods", "pods.core": "pods", "deploy.apps": "deployments.apps", "deployments.v1.apps": "deployments.apps",
		"Deployment.apps": "deployments.apps", "ingress.networking.k8s.io": "ingresses.networking.k8s.io", "Widget.example.com": "widgets.example.com", "ep": "endpoints", "endpoints": "endpoints",
	} {
		s, err := tail.ParseSelector(text)
		if got := s.GroupResource().String(); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

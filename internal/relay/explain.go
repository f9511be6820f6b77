package relay

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/internal/event"
	"github.com/kuberelay/kuberelay/internal/explain"
)

// Explain returns the resources that a Relay with this configuration would watch if it
// started now. It uses only Settings and Kube. Where a Relay would wait, Explain returns an
// error.
func Explain(ctx context.Context, c Config, q explain.Question) (explain.Explanation, error) {
	cl, err := newCluster(c.Kube)
	if err != nil {
		return explain.Explanation{}, &ConfigError{fmt.Errorf("find the cluster: %w", err)}
	}
	w := c.Settings.Watch
	of := explain.Config{
		Selection: selection(c.Settings), Namespaces: namespaceSelection(c.Settings),
		LabelSelector: w.LabelSelector, FieldSelector: w.FieldSelector, Follow: w.Follow,
		Dynamic: cl.dynamic, Discovery: cl.discovery, Reviews: cl.reviews,
	}
	x, err := explain.Explain(ctx, of, q)
	if err == nil {
		return explainShape(x, c)
	}
	if !apierrors.IsForbidden(err) { // explainAPIServer attributes that to the cluster's name
		if permanent := explainAPIServer(c.Kube.Host, err); permanent != nil {
			return explain.Explanation{}, permanent
		}
	}
	// %s cuts the chain, so that an interrupted run does not count as a requested end.
	return explain.Explanation{}, fmt.Errorf("request to the API server %s failed: %s", c.Kube.Host, err.Error())
}

// explainShape adds which fields of the watched resources are dropped and hashed.
func explainShape(x explain.Explanation, c Config) (explain.Explanation, error) {
	shape, err := newShapes(c.Settings.Content, nil)
	if err != nil {
		return explain.Explanation{}, &ConfigError{err}
	}
	var watched []event.Resource
	for _, r := range x.Resources {
		if r.Watched != explain.Nowhere {
			gr := schema.ParseGroupResource(r.Name)
			watched = append(watched, event.Resource{Group: gr.Group, Version: r.Version, Resource: gr.Resource, Kind: r.Kind, Namespaced: r.Namespaced})
		}
	}
	x.Filter, x.DropFields, x.HashFields = c.Settings.Content.Filter, c.Settings.Content.DropFields, shape.hashed(watched)
	x.ReadableFields = shape.readable(watched)
	x.UnmatchedFields = append(shape.drop.Unmatched(watched), shape.hash.Unmatched(watched)...)
	return x, nil
}

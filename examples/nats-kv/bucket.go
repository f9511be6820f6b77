package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// create returns the bucket's stream. It creates the bucket if the bucket does not exist. If the bucket
// is a copy of another stream, create deletes the bucket and creates it again.
func create(ctx context.Context, js jetstream.JetStream, id string) (jetstream.Stream, error) {
	name := "KV_" + bucket
	if s, err := js.Stream(ctx, name); err == nil && s.CachedInfo().Config.Metadata["source-created"] == id {
		return s, nil
	}
	if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	fmt.Println("builds the table from", source, id)
	resource, group, _ := strings.Cut(cmp.Or(os.Getenv("RESOURCE"), "deployments.apps"), ".")
	of := cmp.Or(strings.ReplaceAll(group, ".", "_"), "core") + "." + resource
	return js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Metadata: map[string]string{"source-created": id},
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowDirect: true, AllowRollup: true, DenyDelete: true,
		Sources: []*jetstream.StreamSource{{Name: source, SubjectTransforms: []jetstream.SubjectTransformConfig{
			{Source: "kuberelay.*." + of + ".>", Destination: "$KV." + bucket + ".{{wildcard(1)}}." + of + ".>"},
			{Source: "kuberelay.*._control.resolved." + of, Destination: "$KV." + bucket + ".{{wildcard(1)}}._control.resolved." + of},
		}}},
	})
}

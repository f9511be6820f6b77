// Nats-kv creates a NATS key-value bucket with the objects of one resource, and writes the rows of the
// bucket to a file. The server keeps the bucket up to date, without any code.
//
//	NATS_URL=nats://localhost:4222 RESOURCE=deployments.apps TABLE=table.txt go run ./examples/nats-kv
//
//	nats kv ls objects
//	nats kv get objects prod-eu1.apps.deployments.shop.web --raw
//	nats kv watch objects
//
// You need your own NATS server, because clients can't create buckets on the built-in server. The bucket
// drops the keys of objects that are deleted or no longer selected.
//
// BUCKET is the name of the bucket, by default objects. STREAM is the name of the stream, by default
// KUBERELAY. If the server requires credentials, set NATS_TOKEN, or NATS_USER and NATS_PASSWORD. The
// program waits for the server and the stream. If the stream was recreated, the program deletes the
// bucket and creates it again, so don't use the bucket for anything else.
//
// The file has only the rows of complete clusters. A cluster is complete when the bucket has a
// consistency point for the resource. If KUBERELAY_RESOLVED_INTERVAL is 0, the forwarder publishes no
// points, and no cluster becomes complete. The content mode must be binary. The columns are cluster,
// namespace, name, UID, version, and whether the object was too large for the bus. The value of such an
// object has only apiVersion, kind, and metadata.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	url    = cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL)
	bucket = cmp.Or(os.Getenv("BUCKET"), "objects")
	source = cmp.Or(os.Getenv("STREAM"), "KUBERELAY")
	file   = cmp.Or(os.Getenv("TABLE"), "table.txt")
)

func main() {
	if strings.Contains(url, "@") { // error messages can show the URL
		fmt.Println("NATS_URL has credentials: set NATS_TOKEN, or NATS_USER and NATS_PASSWORD, instead")
		os.Exit(2)
	}
	for ; ; time.Sleep(time.Second) {
		fmt.Println("waiting:", run(context.Background()))
	}
}

// run keeps the file up to date until the connection is lost or the stream is recreated.
func run(ctx context.Context) error {
	conn, err := nats.Connect(url, nats.NoReconnect(), nats.Token(os.Getenv("NATS_TOKEN")),
		nats.UserInfo(os.Getenv("NATS_USER"), os.Getenv("NATS_PASSWORD")))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, source)
	if err != nil {
		return err
	}
	id := stream.CachedInfo().Created.String()
	copied, err := create(ctx, js, id)
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return err
	}
	watcher, err := kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	check := time.NewTicker(time.Second)
	defer check.Stop()
	rows, points, initial := map[string]string{}, map[string]bool{}, true
	for {
		select {
		case e, ok := <-watcher.Updates():
			switch {
			case !ok:
				return errors.New("the watcher ended")
			case e == nil: // the end of the initial values
				initial = false
			default:
				if err := apply(ctx, copied, e, rows, points); err != nil {
					return err
				}
			}
			if len(points) > 0 && !initial {
				if err := write(rows, points); err != nil {
					return err
				}
			}
		case <-check.C:
			if info, err := stream.Info(ctx); err != nil {
				return err
			} else if info.Created.String() != id {
				return errors.New("the stream was recreated")
			}
		}
	}
}

// apply changes the rows, and adds the cluster of a consistency point to points.
func apply(ctx context.Context, copied jetstream.Stream, e jetstream.KeyValueEntry, rows map[string]string, points map[string]bool) error {
	cluster, rest, _ := strings.Cut(e.Key(), ".")
	if strings.HasPrefix(rest, "_control.") {
		points[cluster] = true
		return nil
	}
	if e.Operation() != jetstream.KeyValuePut {
		delete(rows, e.Key())
		return nil
	}
	m, err := copied.GetMsg(ctx, e.Revision()) // the key-value API doesn't return headers
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // a later value follows
	} else if err != nil {
		return err
	}
	o, err := parse(m)
	if err != nil { // a message from another writer can have any content
		fmt.Printf("skips %s: %v\n", e.Key(), err)
		delete(rows, e.Key())
		return nil
	}
	rows[e.Key()] = fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%t\n", cluster, cmp.Or(o.Metadata.Namespace, "-"), o.Metadata.Name,
		o.Metadata.UID, o.Metadata.ResourceVersion, m.Header.Get("ce-truncated") == "true")
	return nil
}

// object has the fields of an object that a row shows.
type object struct {
	Metadata struct{ Namespace, Name, UID, ResourceVersion string }
}

// parse parses the object in the data of an event.
func parse(m *jetstream.RawStreamMsg) (o object, err error) {
	if m.Header.Get("ce-dataschema") == "" {
		err = json.Unmarshal(m.Data, &o)
	} else { // KUBERELAY_DATA=change
		change := struct{ Object *object }{&o}
		err = json.Unmarshal(m.Data, &change)
	}
	if err == nil && o.Metadata.Name == "" {
		err = errors.New("it has no name")
	}
	return o, err
}

// write replaces the file. It leaves out clusters without a consistency point.
func write(rows map[string]string, points map[string]bool) error {
	var table bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if cluster, _, _ := strings.Cut(key, "."); points[cluster] {
			table.WriteString(rows[key])
		}
	}
	if err := os.WriteFile(file+".new", table.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// runFloor is the least that can be done: a watch is read and thrown away. Its arguments
// are a kubeconfig and the namespace to watch, "" for all.
func runFloor(ctx context.Context, args []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	body, err := openWatch(ctx, config, "pods", args[1], url.Values{
		"sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
	})
	if err != nil {
		return err
	}
	defer body.Close()
	n, err := readInitialEvents(body)
	if err != nil {
		return err
	}
	m := reach("acked")
	m.Bytes = n
	if err := tell(m); err != nil {
		return err
	}
	return answerUntilEnd(ctx)
}

// openWatch opens a watch as client-go would, JSON over its transport.
func openWatch(ctx context.Context, config *rest.Config, resource, namespace string, query url.Values) (io.ReadCloser, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	path := "/api/v1/" + resource
	if namespace != "" {
		path = "/api/v1/namespaces/" + namespace + "/" + resource
	}
	query.Set("watch", "true")
	query.Set("allowWatchBookmarks", "true")
	query.Set("timeoutSeconds", "3600")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("watch %s: %s", resource, response.Status)
	}
	return response.Body, nil
}

// endOfInitialEvents is in the bookmark that follows them (KEP-3157).
var endOfInitialEvents = []byte(`"k8s.io/initial-events-end":"true"`)

// readInitialEvents reads all that is before the bookmark, and returns the number of bytes.
func readInitialEvents(r io.Reader) (read int64, err error) {
	buffer := make([]byte, 64<<10)
	kept := 0 // bytes at the buffer's beginning that the bookmark may have begun in
	for {
		n, err := r.Read(buffer[kept:])
		read += int64(n)
		if bytes.Contains(buffer[:kept+n], endOfInitialEvents) {
			return read, nil
		}
		if err != nil {
			return read, errors.Join(errors.New("the watch ended before the bookmark"), err)
		}
		tail := min(kept+n, len(endOfInitialEvents)-1)
		copy(buffer, buffer[kept+n-tail:kept+n])
		kept = tail
	}
}

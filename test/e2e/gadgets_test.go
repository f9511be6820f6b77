package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kuberelay/kuberelay/test/lab/poll"
)

var apiServices = gvr("apiregistration.k8s.io", "v1", "apiservices")

// gadgets returns a CustomResourceDefinition with its own group and a structural schema. The suffix
// of a version selects its role: "v1" is served, "v1-" isn't served, and "v1*" is served and stored.
func gadgets(group, conversion string, versions ...string) string {
	var list []string
	for _, v := range versions {
		name := strings.Trim(v, "*-")
		list = append(list, fmt.Sprintf(`
  - name: %s
    served: %t
    storage: %t
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}, note: {type: string}}}}`,
			name, !strings.Contains(v, "-"), strings.Contains(v, "*")))
	}
	return `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.` + group + `}
spec:
  group: ` + group + `
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  conversion: ` + conversion + `
  versions:` + strings.Join(list, "")
}

const (
	noConversion   = `{strategy: None}`
	deadConversion = `{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:1/convert"}}}`
)

// defineGadgets creates or changes the definition. The definition is deleted at the end of the test.
func (u *user) defineGadgets(group, conversion string, versions ...string) {
	u.t.Helper()
	name := "gadgets." + group
	manifest := gadgets(group, conversion, versions...)
	_, err := u.of(definitions, "").Get(u.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		u.create(definitions, "", manifest)
		u.t.Cleanup(func() {
			_ = u.client.Resource(definitions).Delete(context.Background(), name, metav1.DeleteOptions{})
		})
	} else {
		u.changeDefinition(name, manifest)
	}
	poll.Try(u.t, name+" is established", func(ctx context.Context) error {
		d, err := u.of(definitions, "").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Established" && c["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", conditions)
	})
}

func (u *user) changeDefinition(name, manifest string) {
	u.t.Helper()
	want := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &want.Object); err != nil {
		u.t.Fatal(err)
	}
	poll.Try(u.t, name+" is changed", func(ctx context.Context) error {
		d, err := u.of(definitions, "").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		d.Object["spec"] = want.Object["spec"]
		_, err = u.of(definitions, "").Update(ctx, d, metav1.UpdateOptions{})
		return err
	})
}

func gadget(apiVersion, name string, size int) string {
	return fmt.Sprintf("apiVersion: %s\nkind: Gadget\nmetadata: {name: %s}\nspec: {size: %d}\n", apiVersion, name, size)
}

// createServed creates an object as soon as the API server serves its resource.
func (u *user) createServed(of schema.GroupVersionResource, namespace, manifest string) *unstructured.Unstructured {
	u.t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		u.t.Fatal(err)
	}
	var created *unstructured.Unstructured
	poll.Try(u.t, of.Resource+" can be created", func(ctx context.Context) (err error) {
		created, err = u.of(of, namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	return created
}

// awaitMetric waits until /metrics has a line that begins with start, or until it has none if there
// is false.
func (f *forwarder) awaitMetric(start string, there bool) {
	f.t.Helper()
	poll.Try(f.t, fmt.Sprintf("%s on /metrics: %t", start, there), func(ctx context.Context) error {
		_, body, err := f.get(ctx, "/metrics")
		if err != nil {
			return err
		}
		if strings.Contains(body, "\n"+start) != there {
			var of []string
			for line := range strings.Lines(body) {
				if strings.HasPrefix(line, start[:strings.IndexByte(start, '{')]) {
					of = append(of, line)
				}
			}
			return fmt.Errorf("got %q", of)
		}
		return nil
	})
}

// awaitGone waits until no informer metric contains the resource.
func (f *forwarder) awaitGone(resource string) {
	f.t.Helper()
	for _, name := range []string{"kuberelay_informer_objects", "kuberelay_informer_synced", "kuberelay_informer_lists_total", "kuberelay_informer_watches_total", "informer_queued_items"} {
		f.awaitMetric(name+`{resource="`+resource+`"}`, false)
	}
	f.awaitMetric(`kuberelay_informer_state{reason="",resource="`+resource+`"`, false)
}

// clean waits until the forwarder is idle and runs verify, which must find no problem. It returns
// the output.
func (f *forwarder) clean() string {
	f.t.Helper()
	f.idle()
	code, stdout, stderr := f.run("verify", settle)
	if code != 0 || !strings.Contains(stdout, "0 differences") {
		f.t.Errorf("verify ended with %d:\n%s%s", code, stdout, stderr)
	}
	return stdout
}

// awaitLast waits until the last event of a subject has this type and API version.
func (s *subscriber) awaitLast(subject, kind, apiVersion string) received {
	s.t.Helper()
	var last received
	poll.Try(s.t, fmt.Sprintf("%s ends with %s in %s", subject, kind, apiVersion), func(context.Context) error {
		all := s.of(subject)
		if len(all) == 0 {
			return errors.New("nothing has come")
		}
		last = all[len(all)-1]
		if last.kind() != kind || last.attribute("apiversion") != apiVersion {
			return fmt.Errorf("got %q, the last in %s", s.kinds(subject), last.attribute("apiversion"))
		}
		return nil
	})
	return last
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }

// awaitLastIsNot waits until the last event of a subject has another type than kind.
func (s *subscriber) awaitLastIsNot(subject, kind string) received {
	s.t.Helper()
	var last received
	poll.Try(s.t, subject+" has an event", func(context.Context) error {
		all := s.of(subject)
		if len(all) == 0 || all[len(all)-1].kind() == kind {
			return fmt.Errorf("got %q", s.kinds(subject))
		}
		last = all[len(all)-1]
		return nil
	})
	return last
}

// takeOver points the APIService of a version at a missing service.
func (u *user) takeOver(group, version string) {
	u.t.Helper()
	name := version + "." + group
	patch, _ := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"kube-aggregator.kubernetes.io/automanaged": nil}},
		"spec":     map[string]any{"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "nobody"}},
	})
	poll.Try(u.t, "the APIService is taken over", func(ctx context.Context) error {
		_, err := u.of(apiServices, "").Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	u.t.Cleanup(func() { _ = u.client.Resource(apiServices).Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// labelServed changes a label as soon as the API server can write the object.
func (u *user) labelServed(of schema.GroupVersionResource, namespace, name, value string) {
	u.t.Helper()
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{"changed": value}}})
	poll.Try(u.t, of.Resource+" can be changed", func(ctx context.Context) error {
		_, err := u.of(of, namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

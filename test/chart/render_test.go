package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// manifests are the objects in a rendered chart or a file.
type manifests []*unstructured.Unstructured

// values are the content of a values file for Helm.
type values map[string]any

// helmTemplate renders the chart as the release "kr" in the namespace. If Helm fails, helmTemplate
// returns an error with Helm's output.
func helmTemplate(t *testing.T, namespace string, v values) (manifests, error) {
	t.Helper()
	out, stderr, err := run(t.Context(), v.yaml(t), tool(t, "helm"), "template", "kr", chart, "--namespace", namespace, "--values", "-")
	if err != nil {
		return nil, fmt.Errorf("helm template: %w\n%s", err, stderr)
	}
	return decode([]byte(out))
}

// render is like helmTemplate, but fails the test on an error.
func render(t *testing.T, namespace string, v values) manifests {
	t.Helper()
	m, err := helmTemplate(t, namespace, v)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (v values) yaml(t *testing.T) string {
	t.Helper()
	content, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// decode parses YAML documents and skips the empty ones.
func decode(content []byte) (manifests, error) {
	var m manifests
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		o := &unstructured.Unstructured{}
		switch err := documents.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return m, nil
		case err != nil:
			return nil, err
		case len(o.Object) > 0:
			m = append(m, o)
		}
	}
}

// of returns the manifests of the given kind.
func (m manifests) of(kind string) manifests {
	var found manifests
	for _, o := range m {
		if o.GetKind() == kind {
			found = append(found, o)
		}
	}
	return found
}

// convert returns the typed object of a manifest. It fails the test on an unknown field.
func convert[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &typed, true); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return typed
}

// podTemplate returns the pod template of the only Deployment or StatefulSet.
func (m manifests) podTemplate(t *testing.T) corev1.PodTemplateSpec {
	t.Helper()
	deployments, sets := m.of("Deployment"), m.of("StatefulSet")
	switch {
	case len(deployments) == 1 && len(sets) == 0:
		return convert[appsv1.Deployment](t, deployments[0]).Spec.Template
	case len(deployments) == 0 && len(sets) == 1:
		return convert[appsv1.StatefulSet](t, sets[0]).Spec.Template
	}
	t.Fatalf("got %d Deployments and %d StatefulSets, want one in all", len(deployments), len(sets))
	return corev1.PodTemplateSpec{}
}

// environment returns the environment of the pod's only container.
func (m manifests) environment(t *testing.T) map[string]string {
	t.Helper()
	return environment(t, m.podTemplate(t).Spec)
}

func environment(t *testing.T, pod corev1.PodSpec) map[string]string {
	t.Helper()
	if len(pod.Containers) != 1 {
		t.Fatalf("got %d containers, want one", len(pod.Containers))
	}
	env := map[string]string{}
	for _, v := range pod.Containers[0].Env {
		if _, twice := env[v.Name]; twice || v.ValueFrom != nil {
			t.Errorf("variable %s: set twice, or without a value", v.Name)
		}
		env[v.Name] = v.Value
	}
	return env
}

// refused fails the test unless Helm rejects the values with an error that contains all the words.
func refused(t *testing.T, v values, words ...string) {
	t.Helper()
	_, err := helmTemplate(t, "kuberelay", v)
	if err == nil {
		t.Fatal("Helm renders it")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %v\nwant %q in it", err, w)
		}
	}
}

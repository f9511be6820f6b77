package e2e

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/test/lab/kafkabroker/kafkabrokertest"
)

// TestFlinkSQL_Slow compares a Flink table with the API server. Flink reads the table from the topic
// with its upsert-kafka connector. Some objects are deleted while the forwarder runs, and some
// while it is down.
func TestFlinkSQL_Slow(t *testing.T) {
	for _, mode := range []string{"binary", "structured"} {
		t.Run(mode, func(t *testing.T) {
			bus := topic{t, kafkabrokertest.Shared(t).Addr(), kafkabrokertest.TopicName("sql-" + mode)}
			cp := cluster.ControlPlane(t)
			u := newUser(t, cp)
			namespace := quietNamespace(t, u)
			f := newForwarder(t, cp.Kubeconfig(), "", onKafka(bus, map[string]string{
				"RESOURCES": "configmaps,serviceaccounts", "NAMESPACES": namespace, "CONTENT_MODE": mode, "RESOLVED_INTERVAL": "50ms",
			}))
			for n := range 20 {
				u.create(configMaps, namespace, configMap(fmt.Sprint("c", n), "1"))
			}
			f.start().idle()
			for n := range 4 {
				u.delete(configMaps, namespace, fmt.Sprint("c", n))
			}
			u.create(configMaps, namespace, configMap("c1", "2"))
			f.idle()
			f.kill()
			for n := range 4 {
				u.delete(configMaps, namespace, fmt.Sprint("c", 10+n))
			}
			u.create(configMaps, namespace, configMap("c11", "2"))
			f.start().idle()
			f.verified() // the deletes too, which the forwarder finds after its first lists
			f.stop()

			name := map[string]string{"binary": "$.metadata.name", "structured": "$.data.metadata.name"}[mode]
			got := flinkSQL(t, bus, "SELECT SPLIT_INDEX(k, '/', 2), JSON_VALUE(v, '"+name+"') FROM objects")
			want := slices.Concat(u.rows(configMaps, namespace), u.rows(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, namespace))
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("rows: got %q, want %q", got, want)
			}
			if got := flinkSQL(t, bus, "SELECT count(*) FROM objects"); !slices.Equal(got, []string{fmt.Sprint(len(want))}) {
				t.Errorf("count(*) is %q, want %d", got, len(want))
			}
		})
	}
}

// rows returns the resource and the name of each object in the API server.
func (u *user) rows(gvr schema.GroupVersionResource, namespace string) []string {
	u.t.Helper()
	list, err := u.of(gvr, namespace).List(u.t.Context(), metav1.ListOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	var rows []string
	for _, o := range list.Items {
		rows = append(rows, gvr.Resource+"\t"+o.GetName())
	}
	return rows
}

// flinkSQL returns the sorted rows of a query. The table named objects contains the topic up to its
// current end.
func flinkSQL(t *testing.T, bus topic, query string) []string {
	t.Helper()
	table := fmt.Sprintf(`CREATE TABLE objects (k STRING, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH (
		'connector' = 'upsert-kafka', 'topic' = '%s', 'properties.bootstrap.servers' = '%s',
		'key.format' = 'raw', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY', 'scan.bounded.mode' = 'latest-offset')`, bus.name, bus.addr)
	var rows []string
	for _, line := range kafkabrokertest.RunJava(t, "testdata/flinksql", "FlinkSQL.java", table, query) {
		rows = append(rows, string(line))
	}
	slices.Sort(rows)
	return rows
}

package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuberelay/kuberelay/test/lab/browsertest"
	"github.com/kuberelay/kuberelay/test/lab/poll"
)

var updatePictures = flag.Bool("update", false, "write the pictures of docs/images")

// maxPicture is the maximum size in bytes of a picture in the documentation.
const maxPicture = 150 << 10

var roles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}

// hostileName is a name that a tenant can give to a Role.
const hostileName = `<img src=x onerror="document.title='owned'">`

// statusPage is a forwarder's status page in a browser.
type statusPage struct {
	*browsertest.Tab
	t    *testing.T
	host string
}

func openPage(t *testing.T, address string) statusPage {
	t.Helper()
	p := statusPage{browsertest.Open(t), t, address}
	p.Screen(1280, 900, false)
	p.Dark(false)
	p.Go("http://" + address + "/")
	return p
}

// says waits until an element contains a text.
func (p statusPage) says(selector, text string) {
	p.t.Helper()
	p.Await(fmt.Sprintf("%s says %q", selector, text), fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", selector, text))
}

// clean verifies that the console shows no error, and that every request went to the forwarder.
func (p statusPage) clean() {
	p.t.Helper()
	for _, problem := range p.Problems() {
		p.t.Errorf("the console says: %s", problem)
	}
	for _, r := range p.Requests() {
		if u, err := url.Parse(r); err != nil || u.Host != p.host {
			p.t.Errorf("a request left the host: %s", r)
		}
	}
}

// picture verifies that a picture in the documentation exists and is small. With -update, picture
// first takes a new one. If namespace isn't "", it changes objects there for a minute before that.
func (p statusPage) picture(name string, u *user, namespace string) {
	p.t.Helper()
	if *updatePictures && namespace != "" {
		u.history(namespace)
	}
	taken, err := png.Decode(bytes.NewReader(p.Screenshot(false)))
	if err != nil {
		p.t.Fatal(err)
	}
	small := paletted(taken)
	if len(small.Palette) < 10 {
		p.t.Errorf("%s has %d colors", name, len(small.Palette))
	}
	file := filepath.Join("..", "..", "docs", "images", name)
	if *updatePictures {
		var b bytes.Buffer
		encoder := png.Encoder{CompressionLevel: png.BestCompression}
		if err := errors.Join(encoder.Encode(&b, small), os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, b.Bytes(), 0o644)); err != nil {
			p.t.Fatal(err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Size() > maxPicture {
		p.t.Errorf("%s: %v, %d bytes, want at most %d; go test -update takes it again", name, err, info.Size(), maxPicture)
	}
}

// paletted returns a picture reduced to its most frequent colors, which takes a third of the space.
func paletted(i image.Image) *image.Paletted {
	count := map[color.Color]int{}
	for y := range i.Bounds().Dy() {
		for x := range i.Bounds().Dx() {
			count[i.At(x, y)]++
		}
	}
	colors := slices.Collect(maps.Keys(count))
	slices.SortFunc(colors, func(a, b color.Color) int { return count[b] - count[a] })
	small := image.NewPaletted(i.Bounds(), colors[:min(256, len(colors))])
	draw.Draw(small, i.Bounds(), i, image.Point{}, draw.Src)
	return small
}

// fits verifies that the page needs no horizontal scrolling.
func (p statusPage) fits(what string) {
	p.t.Helper()
	wide := browsertest.Eval[string](p.Tab, `(() => {
		const screen = document.documentElement.clientWidth;
		const wide = [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > screen + 1 && e.checkVisibility());
		return document.documentElement.scrollWidth > screen ? document.documentElement.scrollWidth + " of " + screen + ": " + wide.map((e) => e.tagName + "." + e.className).join() : "";
	})()`)
	if wide != "" {
		p.t.Errorf("%s scrolls horizontally: %s", what, wide)
	}
}

// contrast verifies that every text has the contrast that WCAG 2 requires at level AA.
func (p statusPage) contrast(what string) {
	p.t.Helper()
	for _, text := range browsertest.Eval[[]string](p.Tab, contrastScript) {
		p.t.Errorf("%s: low contrast: %s", what, text)
	}
}

const contrastScript = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const rgba = (color, under) => {
		canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1);
		canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
		return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
	};
	const css = (c) => "rgb(" + c.join() + ")";
	const light = (c) => c.map((v) => v / 255).map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
	const behind = (e) => e ? rgba(getComputedStyle(e).backgroundColor, css(behind(e.parentElement))) : [255, 255, 255];
	const low = [];
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
		if (!text || !e.checkVisibility() || ["SCRIPT", "STYLE", "NOSCRIPT", "OPTION"].includes(e.tagName) || e.closest(".aside, .skip")) continue;
		const under = behind(e), over = rgba(getComputedStyle(e).color, css(under));
		const [a, b] = [light(under), light(over)].sort((a, b) => b - a);
		const ratio = (a + .05) / (b + .05);
		if (ratio < 4.5) low.push(ratio.toFixed(2) + " " + e.tagName + "." + e.className + " " + text.slice(0, 40));
	}
	return low.slice(0, 10);
})()`

// TestStatusPage_Slow opens the page of a real forwarder in a real browser. It verifies that the page
// shows events as they happen, traces an object, sends no request to another host, fits on a phone,
// and reports faults.
func TestStatusPage_Slow(t *testing.T) {
	bus := natsServer(t)
	cp := cluster.ControlPlane(t)
	u := newUser(t, cp)
	namespace := pictured(u)
	f := newForwarder(t, cp.Kubeconfig(), bus.URL, map[string]string{
		"RESOURCES":  "configmaps,deployments.apps,ingresses.networking.k8s.io,jobs.batch,pods,roles.rbac.authorization.k8s.io,secrets,services",
		"NAMESPACES": namespace, "RESOLVED_INTERVAL": "1s", "CLUSTER_NAME": "prod-eu1",
		"LEADER_ELECTION": "true", "LEASE_NAMESPACE": namespace,
	})
	u.create(configMaps, namespace, configMap("before", "1"))
	if err := f.Start("GOMEMLIMIT=230MiB"); err != nil {
		t.Fatal(err)
	}
	f.idle()
	p := openPage(t, f.Address())
	p.says("#level", "OK")
	p.says("#summary", "everything published")
	p.says("#lease", "leading")
	p.says("#resources", "configmaps")
	p.says("#events", namespace+"/before")

	p.live(u, namespace)
	for _, dark := range []bool{false, true} {
		p.Dark(dark)
		p.contrast(fmt.Sprint("well, dark ", dark))
	}
	p.Dark(false)
	p.picture("status-page.png", u, namespace)
	p.Screen(375, 812, true)
	p.fits("a phone")
	p.picture("status-page-phone.png", u, "")
	p.Screen(1280, 900, false)
	p.fits("a screen")
	p.clean()

	bus.Kill()
	p.says("#level", "CRITICAL")
	p.says("#summary", "Bus unavailable for ")
	p.says("#error", "Bus unavailable for ")
	p.says("#instance", "_")
	p.says("#findings", "KUBERELAY_NATS_URL")
	u.create(configMaps, namespace, configMap("waiting", "1"))
	p.Await("the object is unsent", `[...document.querySelectorAll("#resources .some")].some((e) => e.innerText.endsWith("1"))`)
	p.search("configmaps", namespace, "waiting")
	p.says("#traced", "waiting: bus unavailable")
	p.contrast("the bus is unavailable")
	p.Dark(true)
	p.contrast("the bus is unavailable, dark")
	p.picture("status-page-away.png", u, "")
	p.Screen(375, 812, true)
	p.fits("a phone, the bus is unavailable")
	bus.Start()
	p.says("#level", "OK")
	p.clean()

	f.stop()
	if strings.Contains(f.log(), "requests were cut off") {
		t.Error("the open page delays the end of the forwarder")
	}
	p.says("#lost", "The forwarder does not respond")
	p.says("#live", "Not live")
	p.contrast("not live")
	f.start()
	p.says("#live", "Live")
	p.Await("the warning is gone", `document.querySelector("#lost").hidden`)
	f.kill()

	f.Configure(map[string]string{"RESOURCES": "configmaps", "NAMESPACES": namespace, "STATUS_PAGE": "false"})
	f.start().ready()
	if code, _, err := f.get(t.Context(), "/"); err != nil || code != http.StatusNotFound {
		t.Errorf("with KUBERELAY_STATUS_PAGE=false: got %d, %v", code, err)
	}
}

// live verifies that the page shows new events, and that a search shows the trace of an object.
func (p statusPage) live(u *user, namespace string) {
	p.t.Helper()
	u.create(configMaps, namespace, configMap("settings", "1"))
	p.says("#events tr:first-child", namespace+"/settings")
	u.create(roles, namespace, fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: %q}, rules: []}`, hostileName))
	p.says("#events tr:first-child", hostileName)
	p.search("role", namespace, hostileName)
	p.says("#traced", "on the bus: version ")
	p.says("#traced", hostileName)
	if found := browsertest.Eval[int](p.Tab, `document.querySelectorAll("main img, main script").length`); found > 0 {
		p.t.Error("a name became markup")
	}
	if title := browsertest.Eval[string](p.Tab, "document.title"); !strings.HasPrefix(title, "OK · prod-eu1 ·") {
		p.t.Errorf("the title is %q", title)
	}
	p.search("configmaps", namespace, "nothing")
	p.says("#traced", "unknown object")
	p.Await("a click on the last event", `(document.querySelector("#events tr button").click(), true)`)
	p.says("#traced", hostileName)
	u.delete(roles, namespace, hostileName)
	p.says("#events tr:first-child", "deleted")
	p.search("configmap", namespace, "settings")
	p.says("#traced", namespace+"/settings")
	p.says("#traced", "on the bus: version ")
}

// pictured returns a namespace with objects. The namespace has a readable name only if pictures are
// taken.
func pictured(u *user) string {
	u.t.Helper()
	namespace := "shop"
	if *updatePictures {
		u.create(gvr("", "v1", "namespaces"), "", "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	} else {
		namespace = quietNamespace(u.t, u)
	}
	for _, name := range []string{"web", "api", "checkout"} {
		u.create(gvr("apps", "v1", "deployments"), namespace, fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s},
  spec: {replicas: 2, selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: main, image: none}]}}}}`, name))
		u.create(gvr("", "v1", "services"), namespace, fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {ports: [{port: 80}]}}`, name))
		poll.Try(u.t, "the controllers have nothing to do for "+name, func(ctx context.Context) error { // the page shows only the last events
			o, err := u.of(gvr("apps", "v1", "deployments"), namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if n, _, _ := unstructured.NestedInt64(o.Object, "status", "updatedReplicas"); n < 2 {
				return fmt.Errorf("%d of 2 replicas", n)
			}
			return nil
		})
	}
	return namespace
}

// history changes objects for a minute, so that a picture shows charts with data.
func (u *user) history(namespace string) {
	u.t.Helper()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for i := range 60 {
		<-ticker.C
		for n := range (i*i)%7 + i%3 {
			u.label(gvr("apps", "v1", "deployments"), namespace, []string{"web", "api", "checkout"}[n%3], fmt.Sprint(i, "-", n))
		}
	}
}

// search fills in the form with the keyboard and submits it.
func (p statusPage) search(resource, namespace, name string) {
	p.t.Helper()
	p.Type("#trace [name=resource]", resource)
	p.Type("#trace [name=namespace]", namespace)
	p.Type("#trace [name=name]", name+"\r")
}

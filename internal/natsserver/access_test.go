package natsserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kuberelay/kuberelay/test/lab/tlstest"
)

// forwarder connects without a socket, as the forwarder does, and creates the stream.
func forwarder(t *testing.T, s *Server) jetstream.JetStream {
	t.Helper()
	js := inProcess(t, s)
	_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
		Name: "KUBERELAY", Subjects: []string{"kuberelay.>"}, MaxMsgsPerSubject: 8, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func inProcess(t *testing.T, s *Server) jetstream.JetStream {
	t.Helper()
	return connect(t, "", nats.InProcessServer(s))
}

func client(t *testing.T, s *Server, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	return connect(t, s.ClientURL(), opts...)
}

func connect(t *testing.T, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, append(opts, nats.Timeout(limit))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func publish(t *testing.T, js jetstream.JetStream, subject, data string) {
	t.Helper()
	if _, err := js.Publish(t.Context(), subject, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

// TestToken verifies that without credentials in the settings, a client needs the token in a file
// that only the user of the server can read. A restart keeps the token.
func TestToken(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nats")
	token := ""
	for range 2 {
		s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: dir})
		info, err := os.Stat(TokenFile(dir))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("the token has mode %v (%v), want 0600", info.Mode(), err)
		}
		content, err := os.ReadFile(TokenFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(content)); len(got) < 20 || token != "" && got != token {
			t.Errorf("the token has %d characters, and it is another one after a restart: %v", len(got), got != token)
		} else {
			token = got
		}
		refused(t, s)
		refused(t, s, nats.Token("guess"))
		client(t, s, nats.Token(token))
		if err := os.Chmod(TokenFile(dir), 0o664); err != nil { // as kubelet does for an fsGroup
			t.Fatal(err)
		}
		stop(t, s)
	}
}

// TestEmptyToken verifies that a start makes the token if an earlier start created the file and wrote
// nothing, for example because the volume was full.
func TestEmptyToken(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(TokenFile(dir), nil, 0o664); err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: dir})
	content, err := os.ReadFile(TokenFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	refused(t, s)
	client(t, s, nats.Token(strings.TrimSpace(string(content))))
	if info, err := os.Stat(TokenFile(dir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token has mode %v (%v), want 0600", info.Mode(), err)
	}
}

func refused(t *testing.T, s *Server, opts ...nats.Option) {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), append(opts, nats.Timeout(limit))...)
	if err == nil {
		nc.Close()
	}
	if !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("got %v, want the connection refused", err)
	}
}

// TestCredentials verifies access with a password, with a token, after a replacement of the secret,
// and without credentials.
func TestCredentials(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	write := func(content string) {
		if err := os.WriteFile(secret, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	run := func(a Access) *Server {
		dir := t.TempDir()
		s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: dir, Access: a})
		if _, err := os.Stat(TokenFile(dir)); err == nil {
			t.Error("there is a token besides the credentials")
		}
		return s
	}
	s := run(Access{User: "sub", PasswordFile: secret})
	client(t, s, nats.UserInfo("sub", "first"))
	for _, wrong := range [][]nats.Option{nil, {nats.UserInfo("sub", "second")}, {nats.UserInfo("", "first")}, {nats.UserInfo("forwarder", "first")}, {nats.Token("first")}} {
		refused(t, s, wrong...)
	}
	write("second")
	client(t, s, nats.UserInfo("sub", "second"))
	refused(t, s, nats.UserInfo("sub", "first"))

	s = run(Access{TokenFile: secret})
	client(t, s, nats.Token("second"))
	refused(t, s, nats.Token("first"))
	refused(t, s, nats.UserInfo("", "second"))

	client(t, run(Access{Anonymous: true}))
}

// TestReaders verifies that a reader can use all requests of a subscriber, and can't change the stream.
func TestReaders(t *testing.T) {
	s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), Access: Access{Anonymous: true}})
	writer := forwarder(t, s)
	const subject = "kuberelay.prod.core.pods.default.web"
	publish(t, writer, subject, "one")
	denied := make(chan error, 1)
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(limit), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)

	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.StreamNameBySubject(t.Context(), subject); err != nil {
		t.Error(err)
	}
	if _, err := stream.GetLastMsgForSubject(t.Context(), subject); err != nil {
		t.Error(err)
	}
	ordered, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	durable, err := stream.CreateOrUpdateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "app"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []jetstream.Consumer{ordered, durable} {
		m, err := c.Next()
		if err != nil || string(m.Data()) != "one" {
			t.Fatal(m, err)
		}
		if c == durable {
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := durable.Info(t.Context()); err != nil {
		t.Error(err)
	}
	if err := stream.DeleteConsumer(t.Context(), "app"); err != nil {
		t.Error(err)
	}
	old, err := nc.JetStream(nats.MaxWait(limit))
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := old.SubscribeSync("kuberelay.>", nats.OrderedConsumer())
	if err != nil {
		t.Fatal(err)
	}
	if m, err := pushed.NextMsg(limit); err != nil || string(m.Data) != "one" {
		t.Error(m, err)
	}
	select {
	case err := <-denied:
		t.Errorf("a reader was denied: %v", err)
	default:
	}

	for _, forbidden := range []string{
		subject, "kuberelay.prod._control.snapshot.core.pods", "evil", "_INBOX.other.x",
		"$JS.API.STREAM.CREATE.evil", "$JS.API.STREAM.UPDATE.KUBERELAY", "$JS.API.STREAM.DELETE.KUBERELAY",
		"$JS.API.STREAM.PURGE.KUBERELAY", "$JS.API.STREAM.MSG.DELETE.KUBERELAY", "$JS.API.STREAM.SNAPSHOT.KUBERELAY", "$JS.API.STREAM.RESTORE.KUBERELAY",
		"$JS.API.CONSUMER.PAUSE.KUBERELAY.app", "$JS.API.CONSUMER.CREATE.evil", "$SYS.REQ.SERVER.PING",
	} {
		if err := nc.PublishRequest(forbidden, nc.NewInbox(), []byte("{}")); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-denied:
			if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), forbidden) {
				t.Errorf("%s: %v", forbidden, err)
			}
		case <-time.After(limit):
			t.Errorf("a reader may publish to %s", forbidden)
		}
	}
	after, err := writer.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	if got := after.CachedInfo().State; got.Msgs != 1 || got.LastSeq != 1 {
		t.Errorf("the stream holds %d messages up to %d, want the first", got.Msgs, got.LastSeq)
	}
}

// TestReaderCannotHaveServerWrite verifies that a reader can't use a push consumer to write. The
// server itself sends the messages of a push consumer, to a subject that the reader chooses.
func TestReaderCannotHaveServerWrite(t *testing.T) {
	s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), Access: Access{Anonymous: true}})
	writer := forwarder(t, s)
	publish(t, writer, "kuberelay.prod.core.pods.default.web", "{}") // as the body of a purge request, this purges the stream
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	inbox, err := nc.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	request := func(api string, body string) (answer struct {
		Error     *jetstream.APIError    `json:"error"`
		Delivered jetstream.SequenceInfo `json:"delivered"`
	}) {
		t.Helper()
		m, err := nc.Request("$JS.API.CONSUMER."+api, []byte(body), limit)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	push := func(name, to string) *jetstream.APIError {
		return request("DURABLE.CREATE.KUBERELAY."+name,
			`{"stream_name":"KUBERELAY","config":{"durable_name":"`+name+`","deliver_policy":"all","ack_policy":"none","deliver_subject":"`+to+`"}}`).Error
	}
	if push("cycle", "kuberelay.prod.core.pods.default.other") == nil {
		t.Error("a consumer delivers into the stream")
	}
	for name, to := range map[string]string{"purge": "$JS.API.STREAM.PURGE.KUBERELAY", "delete": "$JS.API.STREAM.DELETE.KUBERELAY", "inbox": inbox.Subject} {
		if err := push(name, to); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := inbox.NextMsg(limit); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"purge", "delete"} {
		if got := request("INFO.KUBERELAY."+name, "").Delivered.Stream; got != 0 {
			t.Errorf("the consumer %s has delivered message %d to the API", name, got)
		}
	}
	stream, err := writer.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().State.Msgs; got != 1 {
		t.Errorf("the stream holds %d messages, want 1", got)
	}
}

// TestReaderCannotHaveServerAnswer verifies that a reader can't use the reply subject of a request
// to write. The server itself sends the response to that subject, and the permissions of the reader
// do not apply.
func TestReaderCannotHaveServerAnswer(t *testing.T) {
	s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), Access: Access{Anonymous: true}})
	writer := forwarder(t, s)
	const subject = "kuberelay.prod.core.pods.default.web"
	publish(t, writer, subject, "{}")
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	inbox, err := nc.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	create := `{"stream_name":"KUBERELAY","config":{"durable_name":"app","deliver_policy":"all","ack_policy":"none"}}`
	if _, err := nc.Request("$JS.API.CONSUMER.DURABLE.CREATE.KUBERELAY.app", []byte(create), limit); err != nil {
		t.Fatal(err)
	}
	requests := [][2]string{
		{"INFO", ""}, {"STREAM.NAMES", ""}, {"STREAM.INFO.KUBERELAY", ""}, {"STREAM.MSG.GET.KUBERELAY", `{"last_by_subj":"` + subject + `"}`},
		{"CONSUMER.INFO.KUBERELAY.app", ""}, {"CONSUMER.MSG.NEXT.KUBERELAY.app", `{"batch":1,"no_wait":true}`},
		{"CONSUMER.MSG.NEXT.KUBERELAY.app", `{"batch":1,"no_wait":true}`}, {"CONSUMER.DURABLE.CREATE.KUBERELAY.app", create},
	}
	for _, reply := range []string{
		"kuberelay.prod.core.pods.default.other", "kuberelay.prod._control.cluster._.claimed",
		"$JS.API.STREAM.PURGE.KUBERELAY", "$JS.API.STREAM.DELETE.KUBERELAY", inbox.Subject,
	} {
		for _, r := range requests {
			if err := nc.PublishRequest("$JS.API."+r[0], reply, []byte(r[1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range requests { // once these have responses, all earlier requests are processed
		if _, err := inbox.NextMsg(limit); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := writer.Stream(t.Context(), "KUBERELAY")
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().State; got.Msgs != 1 || got.LastSeq != 1 {
		t.Errorf("the stream holds %d messages up to %d, want the first", got.Msgs, got.LastSeq)
	}
}

// TestDocumentedPermissions verifies that docs/permissions.md has the same list for other servers.
func TestDocumentedPermissions(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "permissions.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(page), "```text\naccounts")
	code, _, _ = strings.Cut(code, "```")
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte("accounts"+code), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(o.Users, func(u *server.User) bool { return u.Username == "reader" })
	if i < 0 {
		t.Fatal("there is no reader")
	}
	reader, forwarder := o.Users[i], o.Users[1-i]
	if reader.Account.Name == forwarder.Account.Name {
		t.Error("the reader is in the account of the stream")
	}
	want := readerPermissions("KUBERELAY", "kuberelay")
	for _, section := range []string{"exports", "imports"} {
		_, list, _ := strings.Cut(code, section+": [")
		list, _, _ = strings.Cut(list, "    ]")
		for _, subject := range slices.Concat(want.Publish.Allow, want.Subscribe.Allow) {
			if !strings.Contains(list, `"`+subject+`"`) {
				t.Errorf("the %s lack %s", section, subject)
			}
		}
		if got := strings.Count(list, "\n") - 1; got != len(want.Publish.Allow)+len(want.Subscribe.Allow) {
			t.Errorf("there are %d %s", got, section)
		}
	}
	if got := reader.Permissions; !reflect.DeepEqual(got.Publish, want.Publish) || !reflect.DeepEqual(got.Subscribe, want.Subscribe) {
		t.Errorf("documented are\n%+v %+v, the built-in server has\n%+v %+v", got.Publish, got.Subscribe, want.Publish, want.Subscribe)
	}
}

// TestMaxBytes verifies that a full server refuses new messages and keeps the stored ones.
func TestMaxBytes(t *testing.T) {
	s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), MaxBytes: 1 << 20})
	js := forwarder(t, s)
	body := make([]byte, 100<<10)
	stored := 0
	for ; stored < 20; stored++ {
		_, err := js.Publish(t.Context(), fmt.Sprintf("kuberelay.prod.core.pods.default.%d", stored), body)
		var api *jetstream.APIError
		if errors.As(err, &api) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if stored < 9 || stored > 11 {
		t.Errorf("1 MiB takes %d messages of 100 KiB", stored)
	}
	info, err := js.AccountInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(stored * len(body)); info.Store < want {
		t.Errorf("the server keeps %d bytes, want at least %d", info.Store, want)
	}
	memory := jetstream.StreamConfig{Name: "M", Subjects: []string{"m"}, Storage: jetstream.MemoryStorage, MaxBytes: maxMemory + 1}
	if _, err := js.CreateStream(t.Context(), memory); err == nil {
		t.Error("a stream reserves more memory than the server may take")
	}
}

// TestMaxConsumers verifies that the number of consumers that readers can create is limited.
func TestMaxConsumers(t *testing.T) {
	s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), Access: Access{Anonymous: true}})
	forwarder(t, s)
	js := client(t, s)
	made := 0
	for ; made <= server.JSDefaultMaxConsumersPerStream; made++ {
		_, err := js.CreateConsumer(t.Context(), "KUBERELAY", jetstream.ConsumerConfig{MemoryStorage: true, InactiveThreshold: time.Hour})
		var api *jetstream.APIError
		if errors.As(err, &api) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if made != server.JSDefaultMaxConsumersPerStream {
		t.Errorf("there are %d consumers, want %d at most", made, server.JSDefaultMaxConsumersPerStream)
	}
}

// TestTLS verifies that with a certificate, clients need TLS but this process does not, and that the
// next connection uses a replaced certificate.
func TestTLS(t *testing.T) {
	ca := tlstest.NewCA(t)
	_, cert, key := ca.Issue("127.0.0.1")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{ListenAddr: "127.0.0.1:0", StoreDir: t.TempDir(), Access: Access{TokenFile: secret, CertFile: cert, KeyFile: key}})
	forwarder(t, s)
	serial := func() string {
		t.Helper()
		nc, err := nats.Connect(s.ClientURL(), nats.Timeout(limit), nats.Token("s"), nats.Secure(ca.Config()))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		state, err := nc.TLSConnectionState()
		if err != nil {
			t.Fatal(err)
		}
		return state.PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	if nc, err := nats.Connect(s.ClientURL(), nats.Token("s")); err == nil {
		nc.Close()
		t.Error("a client connects without verifying the certificate")
	}
	_, otherCert, otherKey := ca.Issue("127.0.0.1")
	for from, to := range map[string]string{otherCert: cert, otherKey: key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	silent, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL(), "tls://")) // must not hold up Shutdown
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	if serial() == first {
		t.Error("the former certificate is still served")
	}
}

package controlplane_test
import ("testing";"time";"path/filepath";"github.com/kuberelay/kuberelay/internal/controlplane/controlplanetest";"github.com/kuberelay/kuberelay/internal/controlplane")
func TestZZ(t *testing.T){
 s:=time.Now()
 cp := controlplanetest.New(t, controlplane.Options{})
 t.Log("start", time.Since(s)); s=time.Now()
 b:=filepath.Join(t.TempDir(),"b")
 if err:=cp.SnapshotEtcd(t.Context(), b);err!=nil{t.Fatal(err)}
 t.Log("snap", time.Since(s)); s=time.Now()
 if err:=cp.RestoreEtcd(t.Context(), b);err!=nil{t.Fatal(err)}
 t.Log("restore", time.Since(s)); s=time.Now()
 t.Fatal(cp.LogTail(60))
}

package zktest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// Tick is the tickTime of a Server. Sessions may be as short as two, and end on a tick.
const Tick = 50 * time.Millisecond

// jarsEnv is a class path that has ZooKeeper, and debianJars the one of Debian's libzookeeper-java.
// The second of these is what ZooKeeper logs through: to standard error, with nothing to configure.
const (
	jarsEnv    = "CACHEGUARD_ZOOKEEPER_JARS"
	debianJars = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
)

// ErrNoServer says that there is no java on the PATH, or no zookeeper.jar.
var ErrNoServer = errors.New("zktest: no java on the PATH, or no zookeeper.jar")

// Server is one standalone ZooKeeper on a loopback port of its own. Restart brings it back with its
// data: sessions and their nodes, too. Its methods are safe for concurrent use.
type Server struct{ *childproc.Server }

// NewServer starts a ZooKeeper and returns once it serves. The arguments are lines of its
// configuration, such as "maxSessionTimeout=2000", or properties of its Java, such as
// "-Dzookeeper.forceSync=yes". On Linux it dies with this process, however that ends. NewServer
// returns ErrNoServer if there is none to start.
func NewServer(args ...string) (*Server, error) { return newServer(0, args) }

// newServer starts a standalone server, or the member of an ensemble with this number; the
// arguments say who else is one.
func newServer(member int, args []string) (*Server, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, ErrNoServer
	}
	jars, err := classPath()
	if err != nil {
		return nil, ErrNoServer
	}
	var data string // where this one keeps its data, and no other
	s, err := childproc.New(childproc.Program{
		Name: "zookeeper",
		Command: func(dir string, port int) (*exec.Cmd, error) {
			data = dataOf(dir)
			if err := os.MkdirAll(data, 0o700); err != nil {
				return nil, err
			}
			if err := os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(member)), 0o600); err != nil {
				return nil, err
			}
			properties, lines := split(args)
			config := filepath.Join(dir, "zoo.cfg")
			if err := os.WriteFile(config, []byte(configuration(data, port)+lines), 0o600); err != nil {
				return nil, err
			}
			main := []string{"-cp", jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config}
			return exec.Command(java, append(properties, main...)...), nil
		},
		// An open port alone says nothing: it is open long before anything is served.
		Ready: func(addr string, _ func(words string) bool) bool {
			conf, err := ask(addr, "conf")
			return err == nil && strings.Contains(conf, "dataDir="+data)
		},
		PortTaken: "Address already in use",
	})
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// configuration is that of every server.
func configuration(data string, port int) string {
	return strings.Join([]string{
		"tickTime=" + strconv.FormatInt(Tick.Milliseconds(), 10),
		"minSessionTimeout=" + strconv.FormatInt(2*Tick.Milliseconds(), 10),
		"maxSessionTimeout=60000",
		"dataDir=" + data,
		"clientPort=" + strconv.Itoa(port),
		"clientPortAddress=" + childproc.Loopback,
		"maxClientCnxns=0",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		"",
	}, "\n")
}

// split returns the properties of Java, with those that every server has before them, and the lines
// of configuration.
func split(args []string) (properties []string, lines string) {
	properties = []string{
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", // it starts sooner, and lives short
		"-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=64", // kill -9 is as far as a test goes
	}
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			properties = append(properties, a)
		} else {
			lines += a + "\n"
		}
	}
	return properties, lines
}

// RestartEmpty kills the server if it runs, and starts it again without its data, as after the loss
// of a disk.
func (s *Server) RestartEmpty() error {
	s.Kill()
	if err := os.RemoveAll(dataOf(s.Dir())); err != nil {
		return err
	}
	return s.Restart()
}

func dataOf(dir string) string { return filepath.Join(dir, "data") }

// classPath is the class path of ZooKeeper, if there is one.
func classPath() (string, error) {
	if jars := os.Getenv(jarsEnv); jars != "" {
		return jars, nil
	}
	for _, jar := range strings.Split(debianJars, ":") {
		if _, err := os.Stat(jar); err != nil {
			return "", err
		}
	}
	return debianJars, nil
}

// One contestant, one round, with nats.go: `nats_go WORK JOB`, as benchmarks/nats_go/__init__.py starts it.
//
// It does the work twice, to warm up and under the clock, and prints one JSON document.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const wait = 30 * time.Second

type job struct {
	URL          string            `json:"url"`
	Messages     int               `json:"messages"`
	Size         int               `json:"size"`
	WarmMessages int               `json:"warm_messages"`
	Stream       string            `json:"stream"`
	WarmStream   string            `json:"warm_stream"`
	Consumers    map[string]string `json:"consumers"`
	Batch        int               `json:"batch"`
	Window       int               `json:"window"`
	Subject      string            `json:"subject"`
	More         string            `json:"more"`
	Block        int               `json:"block"`
}

// What a reader saw: its sums must be those of the stream.
type tally struct {
	Messages  int    `json:"messages"`
	Size      int    `json:"size"`
	Sequences uint64 `json:"sequences"`
}

func (t *tally) add(m jetstream.Msg) {
	metadata, err := m.Metadata()
	check(err)
	t.Messages++
	t.Size += len(m.Data())
	t.Sequences += metadata.Sequence.Stream
}

// Does so many messages of a stream.
type work func(stream string, messages int) tally

var works = map[string]func(*nats.Conn, jetstream.JetStream, job) work{
	"fetch": fetch, "consume": consume, "subscribe": subscribe,
	"request": request, "publish": publish, "window": window, "get": get, "put": put,
}

func main() {
	var j job
	check(json.Unmarshal([]byte(os.Args[2]), &j))
	nc, err := nats.Connect(j.URL)
	check(err)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(max(j.Window, 1)))
	check(err)
	do := works[os.Args[1]](nc, js, j)
	do(j.WarmStream, j.WarmMessages)
	cpu, start := processorTime(), time.Now()
	seen := do(j.Stream, j.Messages)
	seconds := time.Since(start).Seconds()
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"seconds": seconds, "cpu_seconds": processorTime() - cpu, "peak_bytes": peak(),
		"tally": seen, "version": "nats.go " + nats.Version,
	}))
}

func fetch(_ *nats.Conn, js jetstream.JetStream, j job) work {
	return func(stream string, messages int) (seen tally) {
		consumer, err := js.Consumer(context.Background(), stream, j.Consumers[stream])
		check(err)
		for seen.Messages < messages {
			count := min(j.Batch, messages-seen.Messages)
			batch, err := consumer.Fetch(count, jetstream.FetchMaxWait(wait))
			check(err)
			for message := range batch.Messages() {
				seen.add(message)
			}
			check(batch.Error())
		}
		return seen
	}
}

func consume(_ *nats.Conn, js jetstream.JetStream, j job) work {
	return func(stream string, messages int) (seen tally) {
		consumer, err := js.Consumer(context.Background(), stream, j.Consumers[stream])
		check(err)
		done := make(chan struct{})
		arriving, err := consumer.Consume(func(message jetstream.Msg) {
			if seen.Messages == messages {
				return
			}
			seen.add(message)
			if seen.Messages == messages {
				close(done)
			}
		})
		check(err)
		<-done
		arriving.Stop()
		return seen
	}
}

func subscribe(nc *nats.Conn, _ jetstream.JetStream, j job) work {
	more := func(count int) { check(nc.Publish(j.More, []byte(strconv.Itoa(count)))) }
	var left, seen, wanted int
	done := make(chan struct{})
	ask := func() {
		if block := min(left, j.Block); block > 0 {
			left -= block
			more(block)
		}
	}
	sub, err := nc.Subscribe(j.Subject, func(message *nats.Msg) {
		if message.Subject != j.Subject || len(message.Data) != j.Size {
			log.Fatalf("another message: %v", message)
		}
		seen++
		if seen%j.Block == 0 {
			ask()
		}
		if seen == wanted {
			done <- struct{}{}
		}
	})
	check(err)
	check(sub.SetPendingLimits(-1, -1))
	check(nc.Flush())
	return func(_ string, messages int) tally {
		left, seen, wanted = messages, 0, messages
		ask()
		ask()
		<-done
		return tally{Messages: messages}
	}
}

func request(nc *nats.Conn, _ jetstream.JetStream, j job) work {
	payload := make([]byte, j.Size)
	return func(_ string, messages int) tally {
		for range messages {
			reply, err := nc.Request(j.Subject, payload, wait)
			check(err)
			if len(reply.Data) != j.Size {
				log.Fatal("not the reply")
			}
		}
		return tally{Messages: messages}
	}
}

func publish(_ *nats.Conn, js jetstream.JetStream, j job) work {
	subjects, payloads := thousand(j)
	return func(_ string, messages int) tally {
		for n := range messages {
			_, err := js.Publish(context.Background(), subjects[n%1000], payloads[n%1000])
			check(err)
		}
		return tally{Messages: messages}
	}
}

func window(_ *nats.Conn, js jetstream.JetStream, j job) work {
	subjects, payloads := thousand(j)
	return func(_ string, messages int) tally {
		for n := range messages {
			_, err := js.PublishAsync(
				subjects[n%1000], payloads[n%1000], jetstream.WithStallWait(wait))
			check(err)
		}
		<-js.PublishAsyncComplete()
		return tally{Messages: messages}
	}
}

// Reads keys of a bucket, one at a time.
func get(_ *nats.Conn, js jetstream.JetStream, j job) work {
	return func(bucket string, messages int) tally {
		kv, err := js.KeyValue(context.Background(), bucket)
		check(err)
		for n := range messages {
			entry, err := kv.Get(context.Background(), key(n))
			check(err)
			if len(entry.Value()) != j.Size {
				log.Fatal("another value")
			}
		}
		return tally{Messages: messages}
	}
}

// Writes keys of a bucket, one at a time.
func put(_ *nats.Conn, js jetstream.JetStream, j job) work {
	value := make([]byte, j.Size)
	return func(bucket string, messages int) tally {
		kv, err := js.KeyValue(context.Background(), bucket)
		check(err)
		for n := range messages {
			_, err := kv.Put(context.Background(), key(n), value)
			check(err)
		}
		return tally{Messages: messages}
	}
}

// The keys of benchmarks/suites/kv.py.
func key(n int) string { return fmt.Sprintf("key.%d", n%1000) }

// The subjects and payloads of benchmarks/suites/publish.py; other random bytes.
func thousand(j job) (subjects []string, payloads [][]byte) {
	dice := rand.New(rand.NewSource(int64(j.Size)))
	for n := range 1000 {
		payload := make([]byte, j.Size)
		dice.Read(payload)
		subjects = append(subjects, fmt.Sprintf("%s.%02d", j.Stream, n%100))
		payloads = append(payloads, payload)
	}
	return subjects, payloads
}

func processorTime() float64 {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

// Peak resident bytes, 0 where there is no /proc.
func peak() int {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range bytes.Lines(status) {
		if kilobytes, found := strings.CutPrefix(string(line), "VmHWM:"); found {
			number, _ := strconv.Atoi(strings.Fields(kilobytes)[0])
			return number * 1024
		}
	}
	return 0
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

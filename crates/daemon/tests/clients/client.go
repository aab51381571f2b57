// go-redis asks everything there is to ask. Whatever is not as it should be ends it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func example(address string) {
	// example begins
	tollgate := redis.NewClient(&redis.Options{Addr: address})
	reply, err := tollgate.Do(ctx, "CL.THROTTLE", "alice", 15, 30, 60).Int64Slice()
	if err == nil && reply[0] == 1 {
		fmt.Printf("429, try again in %d s\n", reply[3])
	}
	// example ends
	must(err)
	expect(reply, []int64{0, 16, 15, -1, 2})
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(actual, expected any) {
	if !reflect.DeepEqual(actual, expected) {
		panic(fmt.Sprintf("%v is not %v", actual, expected))
	}
}

// fields makes names and values of a reply, which is a list before RESP3.
func fields(reply any, err error) map[string]any {
	must(err)
	named := map[string]any{}
	if pairs, ok := reply.(map[any]any); ok {
		for name, value := range pairs {
			named[name.(string)] = value
		}
		return named
	}
	items := reply.([]any)
	for index := 0; index < len(items); index += 2 {
		named[items[index].(string)] = items[index+1]
	}
	return named
}

func throttled(client *redis.Client, key string) {
	expected := [][]int64{{0, 3, 2, -1, 3600}, {0, 3, 1, -1, 7200}, {0, 3, 0, -1, 10800}, {1, 3, 0, 3600, 10800}}
	for _, numbers := range expected {
		reply, err := client.Do(ctx, "CL.THROTTLE", key, 2, 1, 3600).Int64Slice()
		must(err)
		expect(reply, numbers)
	}
	for _, numbers := range [][]int64{{1, 1, 0, 60, 0}, {0, 1, 0, 60, 60}} {
		reply, err := client.Do(ctx, "THROTTLE", key+"-crab", 1, 1, 60).Int64Slice()
		must(err)
		expect(reply, numbers)
	}
}

func byRules(client *redis.Client, ip string) {
	ask := func(command string) *redis.Cmd { return client.Do(ctx, command, "shop", 1, "op", "login", "ip", ip) }
	first := fields(ask("CHECK").Result())
	expect([]any{first["allowed"], first["status"], first["remaining"]}, []any{int64(1), int64(200), int64(1)})
	expect(fields(ask("PEEK").Result())["remaining"], int64(1))
	expect(fields(ask("CHECK").Result())["allowed"], int64(1))
	refused := fields(ask("CHECK").Result())
	expect([]any{refused["allowed"], refused["status"], refused["rule"]}, []any{int64(0), int64(429), "logins"})
	expect(refused["reason"], "over-limit")
	expect(refused["retry_after_ms"].(int64) > 1_790_000, true)
	expect(ask("RESET.CLIENT").Val(), int64(1))
	expect(fields(ask("CHECK").Result())["allowed"], int64(1))
	expect(strings.Contains(ask("EXPLAIN").Val().(string), "logins: counts for "+ip), true)
}

func reserved(client *redis.Client, team string) {
	reserve := func() map[string]any {
		return fields(client.Do(ctx, "RESERVE", "shop", 600, 60_000, "op", "complete", "team", team).Result())
	}
	first, refused := reserve(), reserve()
	expect([]any{first["allowed"], refused["allowed"]}, []any{int64(1), int64(0)})
	expect(client.Do(ctx, "SETTLE", first["reservation"], 150).Val(), "OK")
	second := reserve()
	expect(client.Do(ctx, "REFUND", second["reservation"]).Val(), "OK")
	left := fields(client.Do(ctx, "PEEK", "shop", 0, "op", "complete", "team", team).Result())
	expect(left["remaining"], int64(850))
	fails(client, "ERR there is no such reservation", "REFUND", second["reservation"])
}

func pipelined(client *redis.Client, key string) {
	replies, err := client.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
		for range 1000 {
			pipeline.Do(ctx, "CL.THROTTLE", key, 99, 1, 3600)
		}
		return nil
	})
	must(err)
	for call, reply := range replies {
		numbers, err := reply.(*redis.Cmd).Int64Slice()
		must(err)
		expect(numbers[0] == 1, call >= 100)
		expect(numbers[2], max(int64(99-call), 0))
	}
}

func reconnected(client *redis.Client) {
	before := client.ClientID(ctx).Val()
	client.Do(ctx, "QUIT")
	expect(client.Ping(ctx).Val(), "PONG")
	expect(client.ClientID(ctx).Val() != before, true)
}

func fails(client *redis.Client, text string, command ...any) {
	err := client.Do(ctx, command...).Err()
	var problem redis.Error
	if !errors.As(err, &problem) || !strings.HasPrefix(problem.Error(), text) {
		panic(fmt.Sprintf("%v: %v", command, err))
	}
}

func mistaken(client *redis.Client) {
	fails(client, "Cell error: Store error: Couldn't parse as integer: x", "CL.THROTTLE", "k", "x", 1, 1)
	fails(client, "ERR invalid max_burst", "THROTTLE", "k", "x", 1, 1)
	fails(client, "ERR unknown command 'get'", "GET", "k")
	fails(client, "ERR the cost is a whole number", "CHECK", "shop", "much")
}

func main() {
	address := "127.0.0.1:" + os.Args[1]
	example(address)
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol, ClientName: "test", PoolSize: 1})
		expect(client.Ping(ctx).Val(), "PONG")
		expect(client.ClientGetName(ctx).Val(), "test")
		throttled(client, fmt.Sprint("go-", protocol))
		byRules(client, fmt.Sprint("198.18.0.", protocol))
		reserved(client, fmt.Sprint("go-", protocol))
		pipelined(client, fmt.Sprint("go-many-", protocol))
		reconnected(client)
		mistaken(client)
		// A password that nobody asked for goes with the user `default`, as with redis-server.
		options := redis.Options{Addr: address, Protocol: protocol, Username: "default", Password: "secret"}
		expect(redis.NewClient(&options).Ping(ctx).Val(), "PONG")
	}
	fmt.Println("all is well")
}

// Command hello is quickly built.
package main

func main() { println("hello") }

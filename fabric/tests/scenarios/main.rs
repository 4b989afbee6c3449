//! Small networks whose behaviour one computes by hand. The computations are the comments.

mod carried;
mod chances;
mod colours;
mod congestion;
mod deadlock;
mod ecn;
mod endings;
mod failures;
mod faults;
mod generators;
mod kit;
mod lab;
mod loops;
mod observed;
mod paths;
mod pauses;
mod processes;
mod pulled;
mod random;
mod repetition;
mod seams;
mod setups;
mod shares;
mod thresholds;
mod timing;
mod trimming;

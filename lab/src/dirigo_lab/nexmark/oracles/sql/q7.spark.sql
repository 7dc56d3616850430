-- Per window of 10 s, all bids of the highest price.
WITH placed AS (
    SELECT *, window(date_time, '10 seconds').start AS window_start
    FROM bid
),
ranked AS (
    SELECT *, RANK() OVER (PARTITION BY window_start ORDER BY price DESC) AS place
    FROM placed
)
SELECT auction, bidder, price, date_time, extra
FROM ranked
WHERE place = 1
